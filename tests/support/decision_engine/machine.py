"""The engine under random events, judged after every step by an oracle that shares none of its
rules, and by an engine built anew, which has nothing left over from before.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.advice.suggestions import suggest
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.model.inputs import (
    DemandSeen,
    DeviceGone,
    DeviceSeen,
    FleetComplete,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    NodeSeen,
    QueuedRequest,
    QuotaSet,
    RequestEnded,
    RequestQueued,
    UseSeen,
    arriving_request,
)
from services.scheduler.domain.model.namespaces import Held, Quota, Use
from services.scheduler.domain.placement.decisions import (
    Decision,
    Grant,
    Preempt,
    Rejection,
    TimeOut,
)
from services.scheduler.domain.placement.density import class_of, demand_of
from services.scheduler.domain.placement.placement import Placed
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.support.decision_engine.fleets import NODES, PER_NODE, make_device, make_node
from tests.support.decision_engine.oracle import NEVER, KnownState, is_one_group, parts_of, shape_of

START = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE_CAP = 12
OF_QUOTA = {ReasonCode.OVER_QUOTA, ReasonCode.EXCEEDS_QUOTA}
OF_QUEUE = {ReasonCode.BEHIND_IN_QUEUE, ReasonCode.KEPT_FOR_EARLIER}


class EngineMachine:
    """One history. A rule that does not apply in its place does nothing.

    `steps` counts every rule that was really carried out, over all histories.
    """

    steps: ClassVar[Counter[str]] = Counter()
    decided: ClassVar[Counter[str]] = Counter()

    def __init__(
        self, sizes: Sequence[int], *, complete: bool, aging_seconds: float, density: bool = False
    ) -> None:
        """A healthy, idle fleet to begin with."""
        self.policy = Policy(
            aging_seconds=aging_seconds, preemption_grace_seconds=15.0, density=density
        )
        self.now = START
        self.engine = DecisionEngine(self.policy)
        self.twin = DecisionEngine(
            self.policy
        )  # gets the same, but is rebuilt from its state at times
        self.model = KnownState()
        self.ended: dict[UUID, str] = {}
        self.reclaimed_for: dict[UUID, datetime] = {}
        self.arrivals = 0
        self.log: list[tuple[tuple[Input, ...], datetime | None, tuple[Decision, ...]]] = []
        for number, size in enumerate(sizes):
            self._tell(NodeSeen(node=make_node(number, 0)))
            for index in range(size):
                self._tell(DeviceSeen(device=make_device(number * PER_NODE + index, 0, 0)))
        self._tell(FleetComplete(complete=complete))

    def learn(self) -> None:
        """What waits is what is usually asked for."""
        waiting = (entry.request for entry in self.model.queue.values())
        counts = Counter(class_of(request) for request in waiting)
        self._tell(DemandSeen(demand=demand_of(counts)))
        self._count("learn")

    # What happens outside.

    def node_seen(self, number: int, kind: int) -> None:
        self._count("node_seen")
        self._tell(NodeSeen(node=make_node(number, kind)))

    def device_seen(self, place: int, reading: int, trouble: int) -> None:
        self._count("device_seen")
        self._see(make_device(place, reading, trouble))

    def device_well(self, place: int) -> None:
        """Most devices are idle most of the time."""
        self._count("device_well")
        self._see(make_device(place, 0, 0))

    def gone(self, place: int, *, is_node: bool) -> None:
        """What is held or quarantined stays known, as the ledger keeps it."""
        if len(self.model.devices) <= PER_NODE:
            return
        held = self.model.holders()
        node_id = f"node-{place // PER_NODE}"
        of_node = [d for d in self.model.devices.values() if d.node_id == node_id]
        if is_node and not any(d.number in held or d.quarantined for d in of_node):
            self._count("node_gone")
            self._tell(NodeGone(node_id=node_id))
        device = self.model.devices.get(place)
        if not is_node and device is not None and place not in held and not device.quarantined:
            self._count("device_gone")
            self._tell(DeviceGone(number=place))

    def settle(self, which: int) -> None:
        """Now and then, and then a node is back with all its devices."""
        self._count("complete")
        self._tell(FleetComplete(complete=which % 2 == 0))
        for place in range(which % NODES * PER_NODE, which % NODES * PER_NODE + PER_NODE):
            self._see(make_device(place, 0, 0))

    def quota(self, namespace: str, limit: int | None, guaranteed: int, weight: int) -> None:
        self._count("quota")
        self._tell(
            QuotaSet(
                quota=Quota(namespace=namespace, limit=limit, guaranteed=guaranteed, weight=weight)
            )
        )

    def used(self, held: dict[str, Held]) -> None:
        self._count("used")
        self._tell(UseSeen(use=Use(window_seconds=1000, by_namespace=held)))

    def request(
        self,
        asked: Sequence[GpuRequest],
        timeout_seconds: int,
        *,
        decide: bool,
        namespace: str = "",
    ) -> None:
        if len(self.model.queue) >= QUEUE_CAP:
            return
        self._count("request")
        for request in asked:
            self._request(request, timeout_seconds, namespace)
        if decide:
            self._decide()

    def change(self, which: int, request: GpuRequest) -> None:
        """One that waits asks for something else in its place."""
        entry = self._waiting(which)
        if entry is not None and entry.wait_deadline_at > self.now:
            self._count("change")
            self._tell(RequestQueued(entry=replace(entry, request=request)))

    def cancel(self, which: int) -> None:
        entry = self._waiting(which)
        if entry is not None:
            self._count("cancel")
            self._end(entry.reservation_id, "cancelled")
            self._tell(RequestEnded(reservation_id=entry.reservation_id))

    def lease_ends(self, which: int, *, confirmed: bool) -> None:
        """Released, or expired and not yet confirmed as stopped."""
        lease = self._lease_at(which)
        if lease is None:
            return
        self._count("lease_ends")
        if not confirmed:
            for number in lease.numbers:
                device = self.model.devices[number]
                if lease.parts:
                    continue  # the ledger goes on naming the lease of a part
                self._tell(
                    DeviceSeen(
                        device=replace(device, quarantined=True, holder=lease.reservation_id)
                    )
                )
        self._tell(LeaseEnded(reservation_id=lease.reservation_id))

    def lease_changes(self, which: int, ends_in_seconds: int | None) -> None:
        """It is expected to end at another time, or nobody can tell any more."""
        lease = self._lease_at(which)
        if lease is not None:
            self._count("lease_changes")
            later = timedelta(seconds=ends_in_seconds or 0)
            end = self.now + later if ends_in_seconds is not None else None
            self._tell(LeaseHeld(lease=replace(lease, expected_end_at=end)))

    def confirmed(self, which: int) -> None:
        """The node says that a quarantined device is quiet."""
        quarantined = sorted(n for n, d in self.model.devices.items() if d.quarantined)
        if quarantined:
            self._count("confirmed")
            device = self.model.devices[_pick(quarantined, which)]
            holder = self.model.holders().get(device.number)
            self._tell(DeviceSeen(device=replace(device, quarantined=False, holder=holder)))

    def time_passes(self, seconds: int) -> None:
        """Nothing is decided before the moment that the engine named."""
        self._count("time_passes")
        self._decide()
        named = self.engine.next_decision_at(self.now)
        later = self.now + timedelta(seconds=seconds)
        if named is not None and named > self.now:
            before = min(named - timedelta(milliseconds=1), later)
            if before > self.now:
                self.now = before
                assert self._decide() == (), f"decided at {before}, named {named}"
        elif named is None and later > self.now:
            self.now = later
            assert self._decide() == (), "decided although time alone changes nothing"
        self.now = later
        for lease in tuple(self.model.leases.values()):
            if lease.preempting_until is not None and lease.preempting_until <= self.now:
                self._tell(LeaseEnded(reservation_id=lease.reservation_id))
        self._decide()

    # What is asked.

    def decide(self) -> None:
        self._count("decide")
        self._decide()

    def what_if(
        self,
        which: int,
        request: GpuRequest,
        *,
        comes: bool,
        undecided_seconds: int | None,
        namespace: str,
    ) -> None:
        """What would be granted is what is granted when it is asked for.

        It is asked when everything is decided, or some time after that should have been.
        """
        self._count("what_if")
        decided = undecided_seconds is None
        if decided:
            self._decide()
        self.now += timedelta(seconds=undecided_seconds or 0)
        waiting = None if comes else self._waiting(which)
        if waiting is None:
            entry = arriving_request(request, self.now, namespace)
        else:
            entry = replace(waiting, request=request)
        before = self.engine.state()
        with self.engine.what_if(self.now) as what_if:
            placed = what_if.place(entry)
            reasons = what_if.reasons(entry)
        assert self.engine.state() == before
        assert (placed is not None) == (not reasons), (placed, reasons)
        assert placed == self._granted(entry)
        # With a newcomer, turns of others may change, and with them what is decided before it.
        is_alone = len({e.namespace for e in (*self.model.queue.values(), entry)} - {""}) < 2
        if decided and is_alone and (waiting is None or self._goes_before(entry, waiting)):
            if placed is not None:
                self._check_place(request, placed)
            self._check_reasons(request, reasons, self._ahead(entry))

    def explain(self, which: int) -> None:
        self._decide()
        entry = self._waiting(which)
        if entry is None:
            return
        self._count("explain")
        with self.engine.what_if(self.now) as what_if:
            reasons = what_if.reasons(entry)
        assert reasons
        ahead = self._ahead(entry)
        assert self.engine.waiting[ahead].reservation_id == entry.reservation_id
        self._check_reasons(entry.request, reasons, ahead)

    def suggestion(self, which: int, *, decided: bool) -> None:
        """What is suggested is granted when it is asked for instead."""
        if decided:
            self._decide()
        entry = self._waiting(which)
        if entry is None:
            return
        self._count("suggestion")
        with self.engine.what_if(self.now) as what_if:
            found = suggest(
                entry.request,
                lambda asked: what_if.can_place(replace(entry, request=asked)),
                trials=60,
            )
        if found is not None:
            assert self._granted(replace(entry, request=found.request)) is not None, found

    def keyframe(self) -> None:
        """An engine built from the recorded state goes on as if it had been there all the time."""
        self._count("keyframe")
        recorded = msgspec.json.encode(self.engine.state())
        self.twin = DecisionEngine(self.policy)
        self.twin.apply(*msgspec.json.decode(recorded, type=tuple[Input, ...]))
        assert self.twin.state() == self.engine.state()

    def end(self) -> None:
        """Decided again from the recorded inputs, everything is decided as it was."""
        again = DecisionEngine(self.policy)
        for inputs, at, decisions in self.log:
            again.apply(*inputs)
            if at is not None:
                assert again.decide(at) == decisions

    # The owner's side.

    def _request(self, request: GpuRequest, timeout_seconds: int, namespace: str) -> None:
        self.arrivals += 1
        self._tell(
            RequestQueued(
                entry=QueuedRequest(
                    reservation_id=UUID(int=self.arrivals),
                    request=request,
                    arrival=self.arrivals,
                    wait_deadline_at=self.now + timedelta(seconds=timeout_seconds),
                    queued_at=self.now,
                    namespace=namespace,
                )
            )
        )

    def _count(self, name: str) -> None:
        type(self).steps[name] += 1

    def _waiting(self, which: int) -> QueuedRequest | None:
        queue = self.model.queue
        return queue[_pick(sorted(queue), which)] if queue else None

    def _lease_at(self, which: int) -> Lease | None:
        leases = self.model.leases
        return leases[_pick(sorted(leases), which)] if leases else None

    def _ahead(self, entry: QueuedRequest) -> int:
        ranks = self.model.ranks(self.policy.aging_seconds, self.now, entry)
        return sum(rank < ranks[entry.reservation_id] for rank in ranks.values())

    def _goes_before(self, entry: QueuedRequest, other: QueuedRequest) -> bool:
        ranks = [
            self.model.ranks(self.policy.aging_seconds, self.now, each)[entry.reservation_id]
            for each in (entry, other)
        ]
        return ranks[0] <= ranks[1]

    def _anew(self) -> DecisionEngine:
        engine = DecisionEngine(self.policy)
        engine.apply(*self.engine.state())
        return engine

    def _granted(self, entry: QueuedRequest) -> Placed | None:
        """What an engine that knows nothing but the state grants if this is queued."""
        engine = self._anew()
        engine.apply(RequestEnded(reservation_id=entry.reservation_id), RequestQueued(entry=entry))
        for decision in engine.decide(self.now):
            if isinstance(decision, Grant) and decision.reservation_id == entry.reservation_id:
                return decision.placed
        return None

    def _see(self, device: Device) -> None:
        known = self.model.devices.get(device.number)
        if known is not None and known.quarantined:
            device = replace(device, quarantined=True, holder=known.holder)
        self._tell(DeviceSeen(device=device))

    def _tell(self, change: Input) -> None:
        self.log.append(((change,), None, ()))
        self.engine.apply(change)
        self.twin.apply(change)
        self.model.take(change)

    def _end(self, reservation_id: UUID, how: str) -> None:
        assert reservation_id not in self.ended, (self.ended[reservation_id], how)
        self.ended[reservation_id] = how

    def _decide(self) -> tuple[Decision, ...]:
        anew = self._anew()
        decisions = self.engine.decide(self.now)
        self.log.append(((), self.now, decisions))
        assert self.twin.decide(self.now) == decisions
        assert anew.decide(self.now) == decisions
        about = [d.reservation_id for d in decisions if not isinstance(d, Preempt)]
        assert len(about) == len(set(about))
        for place, decision in enumerate(decisions):
            later = {d.reservation_id for d in decisions[place + 1 :] if not isinstance(d, Preempt)}
            self._follow(decision, later)
        assert self.engine.decide(self.now) == ()
        self._check_rest()
        self._check_nothing_is_left(self._anew() if decisions else anew)
        return decisions

    def _follow(self, decision: Decision, later: set[UUID]) -> None:
        self.decided[type(decision).__name__.lower()] += 1
        model = self.model
        match decision:
            case Grant(reservation_id=reservation_id, placed=placed):
                ranks = model.ranks(self.policy.aging_seconds, self.now)
                entry = model.queue.pop(reservation_id)
                self._end(reservation_id, "granted")
                self._check_place(entry.request, placed)
                assert not model.asks_too_much(entry), entry
                if not model.queue and _goes_by_nearness(entry.request):
                    self.decided["grant_judged_by_nearness"] += 1
                    assert not model.has_nearer(entry.request, placed.numbers), entry
                for waiting in model.queue.values():
                    ahead = ranks[waiting.reservation_id] < ranks[reservation_id]
                    is_held_back = model.asks_too_much(waiting) or waiting.reservation_id in later
                    if ahead and not is_held_back:
                        assert not model.delays(waiting, self._lease(entry, placed), self.now), (
                            f"{entry} on {sorted(placed.numbers)} delays {waiting}"
                        )
                model.leases[reservation_id] = self._lease(entry, placed)
                with self.engine.what_if(self.now) as what_if:
                    assert what_if.find_queued(reservation_id) is None
            case Rejection(reservation_id=reservation_id, reasons=reasons):
                entry = model.queue.pop(reservation_id)
                self._end(reservation_id, "rejected")
                assert reasons
                if {each.code for each in reasons} == {ReasonCode.EXCEEDS_QUOTA}:
                    assert model.exceeds_limit(entry), entry
                else:
                    assert model.is_impossible(entry.request), entry
            case TimeOut(reservation_id=reservation_id, reasons=reasons):
                entry = model.queue.pop(reservation_id)
                self._end(reservation_id, "timed_out")
                assert reasons
                assert entry.wait_deadline_at <= self.now
            case Preempt():
                self._check_preemption(decision)

    def _lease(self, entry: QueuedRequest, placed: Placed) -> Lease:
        numbers, parts = sorted(placed.numbers), placed.parts
        seconds = entry.request.expected_duration_seconds
        return Lease(
            reservation_id=entry.reservation_id,
            request=entry.request,
            numbers=tuple(numbers),
            parts=tuple(parts.get(n, 100) for n in numbers) if parts else (),
            namespace=entry.namespace,
            granted_at=self.now,
            expected_end_at=self.now + timedelta(seconds=seconds) if seconds else None,
        )

    def _check_preemption(self, decision: Preempt) -> None:
        model = self.model
        victim, waiting = (
            model.leases[decision.reservation_id],
            model.queue[decision.for_reservation_id],
        )
        assert self.policy.preemption
        assert victim.preempting_until is None
        outranked = victim.request.preemptible and (
            victim.request.priority < waiting.request.priority
        )
        if decision.cause is PreemptionCause.GUARANTEE:
            assert not outranked
            assert model.is_guaranteed(waiting)
            assert victim.namespace != waiting.namespace
            self.reclaimed_for.setdefault(waiting.reservation_id, self.now)
            assert self.reclaimed_for[waiting.reservation_id] == self.now, "taken back twice"
            model.queue[waiting.reservation_id] = replace(waiting, has_reclaimed=True)
        else:
            assert outranked
        if model.has_guarantees and victim.namespace != waiting.namespace:
            assert model.keeps_guarantee_without(victim), victim
        assert decision.until_at == self.now + timedelta(
            seconds=self.policy.preemption_grace_seconds
        )
        model.leases[victim.reservation_id] = replace(
            victim,
            preempting_until=decision.until_at,
            preempting_for=decision.for_reservation_id,
        )

    def _check_place(self, request: GpuRequest, placed: Placed) -> None:
        model, numbers = self.model, placed.numbers
        for number in numbers:
            assert not model.codes(model.devices[number], request), (
                number,
                model.codes(model.devices[number], request),
            )
        if request.shares is not None:
            parts = {n: placed.parts.get(n, 100) for n in numbers}
            held = model.held_parts()
            assert all(0 < part <= 100 - held[n] for n, part in parts.items()), (parts, held)
            assert parts_of(request, parts), (request, parts)
            assert len({model.devices[n].node_id for n in numbers}) == 1
        else:
            assert not placed.parts
            assert shape_of(request, numbers, model.devices), (request, numbers)
        assert is_one_group(request, [model.devices[n] for n in numbers]), (request, numbers)
        assert model.fits(request, set(numbers), set(model.leases)), (request, numbers)

    def _check_rest(self) -> None:
        """What holds between any two decisions."""
        model = self.model
        assert self.engine.queue_length == len(model.queue)
        held = model.held_parts()
        assert all(amount <= 100 for amount in held.values()), held
        seen = {d.device.number: d.device for d in self.engine.state() if isinstance(d, DeviceSeen)}
        for number, amount in held.items():
            if number in seen:
                assert 100 - seen[number].free_hundredths == amount, seen[number]
        for node_id in model.nodes:
            cpu, memory_mb = model.room_left(node_id)
            known = model.nodes[node_id]
            assert known.cpu_count is None or cpu >= 0
            assert known.memory_total_mb is None or memory_mb >= 0
        for entry in model.queue.values():
            assert entry.wait_deadline_at > self.now
            assert not model.is_impossible(entry.request), entry
            assert not model.exceeds_limit(entry), entry
        able = [entry for entry in model.queue.values() if not model.asks_too_much(entry)]
        if able:
            ranks = model.ranks(self.policy.aging_seconds, self.now)
            head = min(able, key=lambda entry: ranks[entry.reservation_id])
            assert not model.fits(head.request, model.free_numbers(), set(model.leases)), head

    def _check_nothing_is_left(self, anew: DecisionEngine) -> None:
        """Nobody waits who has a place, and what is kept for whom is what the state asks for."""
        with self.engine.what_if(self.now) as what_if:
            for entry in self.model.queue.values():
                assert what_if.place(entry) is None, entry
        assert anew.decide(self.now) == ()
        last = replace(
            arriving_request(GpuRequest(priority=-1000), self.now),
            queued_at=self.now + timedelta(days=1),
        )
        for request in (last.request, replace(last.request, expected_duration_seconds=60.0)):
            entry = replace(last, request=request)
            with self.engine.what_if(self.now) as one, anew.what_if(self.now) as other:
                assert one.context(entry) == other.context(entry)

    def _check_reasons(self, request: GpuRequest, reasons: Sequence[Reason], ahead: int) -> None:
        if not reasons:
            return
        model = self.model
        all_codes = {reason.code for reason in reasons}
        by_uuid = {device.uuid: device for device in model.devices.values()}
        found: dict[str, set[ReasonCode]] = {}
        for reason in reasons:
            assert reason.message
            assert reason.code not in OF_QUEUE or ahead > 0
            if reason.device_uuid is not None:
                found.setdefault(reason.device_uuid, set()).add(reason.code)
        for uuid, device in by_uuid.items():
            codes = model.codes(device, request)
            said = found.get(uuid, set()) - OF_QUEUE
            if OF_QUOTA & all_codes:
                assert said <= codes | NEVER, (uuid, said, codes)  # what the quota says may be all
            elif model.is_impossible(request):
                assert said == codes & NEVER, (uuid, said, codes)
            else:
                assert said == codes, (uuid, said, codes)


def _goes_by_nearness(request: GpuRequest) -> bool:
    """Whether nothing comes before it."""
    wishes = request.prefer or request.balanced_memory
    return request.gpus > 1 and request.nodes == 1 and not wishes


def _pick(ids: list[Any], which: int) -> Any:
    return ids[which % len(ids)]
