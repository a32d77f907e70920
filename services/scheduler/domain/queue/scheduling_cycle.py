"""The scheduling cycle: re-evaluates only the waiting groups that a change can concern.

`decide` in steps:
1. Pass time: a lease past its expected end promises no end any more, so its nodes count as changed.
2. Renew the views of changed nodes, and put each group that one of them may concern on the
   worklist.
3. Take the first group in rank from the worklist; reject its requests if the fleet can never serve
   them.
4. Search a place for its request. Granted: step 2 for the nodes of the grant, then the group's next
   request that may still be worth a search.
5. No place, and it is the group's first request: renew its backfill reservation. If that changed,
   the groups behind it on the same nodes go on the worklist. Preempt if that starts it sooner.
6. Worklist empty: time out requests past their deadline. What they had reserved may serve others,
   so step 3 again until no request is overdue.

A group off the worklist would be decided as before: whether its first request has a place depends
on the nodes its filter uses, on what earlier groups reserve there and on the leases it could
preempt. The first and the last change with a view (step 2), the second in `_set_backfill` (step 5).
What a group could ever use changes with the nodes themselves (`NodeViews.remade`). Time alone
changes promised ends (step 1), deadlines (step 6) and, by aging, the turns of namespaces: `next_at`
names the next of these. Requests behind a group's first have a place only if they are shorter, see
`Worklist`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.gpus.gpu_request import WHOLE
from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.indexes.node_views import NodeView, NodeViews
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES
from services.scheduler.domain.model.inputs import (
    FleetComplete,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    QuotaSet,
    RequestEnded,
    RequestQueued,
)
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.decisions import (
    Decision,
    Grant,
    Preempt,
    Rejection,
    TimeOut,
)
from services.scheduler.domain.placement.placement import Placed
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.placement.reasons import (
    blocking_reasons,
    impossible_reasons,
    over_quota,
)
from services.scheduler.domain.placement.request_shape import Rank, RankedRequest, shape_of
from services.scheduler.domain.placement.shares import total_hundredths
from services.scheduler.domain.queue.backfill import BackfillForecast
from services.scheduler.domain.queue.deadlines import Deadlines
from services.scheduler.domain.queue.order import is_shorter, later, rank_request, seniority_of
from services.scheduler.domain.queue.placement_search import PlacementSearch
from services.scheduler.domain.queue.preemption import Preemption
from services.scheduler.domain.queue.turn_order import TurnOrder
from services.scheduler.domain.queue.waiting_group import BackfillReservation, WaitingGroup
from services.scheduler.domain.queue.waiting_groups import WaitingGroups
from services.scheduler.domain.queue.worklist import WorkItem, Worklist

LAST: Final[Rank] = (1 << 80, 0, 0, 0)  # behind every real rank


class SchedulingCycle:
    """`apply` takes state changes in, and puts the groups that they concern on the worklist."""

    def __init__(self, state: State, policy: Policy) -> None:
        self._state = state
        self._policy = policy
        self._views = NodeViews(state, policy.weights)
        self.waiting = WaitingGroups(self._views)
        self.search = PlacementSearch(state, self._views, self.waiting, policy)
        self._forecast = BackfillForecast(state, self._views, policy.weights)
        self._preemption = Preemption(state, self._views, self.waiting, self._forecast)
        self._worklist = Worklist()
        self._deadlines = Deadlines(state)
        self.order = TurnOrder(state, self.waiting, policy.aging_seconds)
        self._fleet_generation = 0  # grows when what can ever fit may have changed

    def apply(self, change: Input) -> None:
        match change:
            case RequestQueued(entry=entry):
                self._dequeue(entry.reservation_id)
                self._state.apply(change)
                self._enqueue(entry)
                return
            case RequestEnded(reservation_id=reservation_id):
                self._dequeue(reservation_id)
            case LeaseHeld(lease=lease):
                self._dequeue(lease.reservation_id)
                self._recheck_preemptor(lease.reservation_id)
                self._recheck_namespace(lease.namespace)
            case LeaseEnded(reservation_id=reservation_id):
                self._recheck_preemptor(reservation_id)
                lease_before = self._state.leases.get(reservation_id)
                if lease_before is not None:
                    self._recheck_namespace(lease_before.namespace)
            case QuotaSet() | FleetComplete():
                self._worklist.add(*self.waiting.groups.values())
            case _:
                pass
        self._state.apply(change)

    def decide(self, now: datetime, *, explain: bool = True) -> Iterator[Decision]:
        """Make all decisions that are due, and apply each before the next.

        Without `explain` time-outs have no reasons: to work out reasons is most of their cost.
        """
        while True:
            yield from self.decide_before(None, now)
            overdue = {(self.order.rank(e), e.reservation_id) for e in self._deadlines.take(now)}
            if not overdue:
                return
            yield from self._time_out(sorted(overdue), now, explain=explain)

    def decide_before(self, entry: QueuedRequest | None, now: datetime) -> Iterator[Decision]:
        """Make the decisions on requests before this one, or on all, except for time-outs."""
        self._state.pass_time(now)
        self._refresh()
        while True:
            if self.waiting.is_contended or len(self.waiting.by_namespace) > 1:
                self.put_in_order(now)
            rank = self.order.rank(entry) if entry is not None else LAST
            item = self._worklist.pop(rank)
            if item is None:
                return
            yield from self._evaluate(item, now)

    def put_in_order(self, now: datetime | None) -> None:
        """Move groups of namespaces whose turn has changed, as if they had left and come again."""
        for group, standing, levels in self.order.moves(now):
            self._set_backfill(group, None)
            group.move(standing, levels)
            self._worklist.add(group)

    def is_overdue(self, now: datetime) -> bool:
        """Return True if a request has waited past its deadline."""
        at = self._deadlines.next_at
        return at is not None and at <= now

    def rank(self, entry: QueuedRequest, now: datetime) -> RankedRequest:
        """The request with the rank that it has, or would have in the queue."""
        return rank_request(entry.request, self.order.rank(entry), now)

    def next_at(self, now: datetime) -> datetime | None:
        """Return when time alone may next change a decision; None while nothing waits or can
        change.
        """
        if not len(self.waiting):
            return None
        ends = self._deadlines.next_at, self._state.next_end(now)
        moments = (*ends, self.order.next_tick(now))
        return min((at for at in moments if at is not None), default=None)

    def quota_reason(self, entry: QueuedRequest) -> Reason | None:
        """Return why the quota forbids the request, now or for ever; None if it does not."""
        hundredths = total_hundredths(entry.request)
        quota = self._state.over_limit(entry.namespace, hundredths)
        return (
            over_quota(quota, self._state.held_by(entry.namespace).hundredths, hundredths)
            if quota
            else None
        )

    def _enqueue(self, entry: QueuedRequest) -> None:
        seniority = seniority_of(entry, self._policy.aging_seconds)
        shape = shape_of(entry.request)
        group = self.waiting.groups.get((shape, entry.namespace))
        if group is not None and seniority < group.entries[0][0]:
            self._set_backfill(group, None)
        filter_index = self.search.filter_index(shape.filter, entry.request)
        group = self.waiting.add(seniority, entry, shape, filter_index)
        if group.backfill is None:
            self._worklist.add(group)
        elif is_shorter(entry, group.head):
            self._worklist.add_from(group, group.rank_of(seniority))
        self._deadlines.add(entry)

    def _dequeue(self, reservation_id: UUID) -> None:
        place = self.waiting.places.get(reservation_id)
        if place is None:
            return
        seniority, group = place
        if seniority == group.entries[0][0]:
            self._set_backfill(group, None)
        self.waiting.remove(reservation_id)
        if group.backfill is None:
            self._worklist.add(group)

    def _recheck_preemptor(self, reservation_id: UUID) -> None:
        """A preempted lease changed: its preemptor may have to preempt another lease."""
        lease = self._state.leases.get(reservation_id)
        if lease is not None and lease.preempting_for is not None:
            place = self.waiting.places.get(lease.preempting_for)
            if place is not None:
                self._worklist.add(place[1])

    def _recheck_namespace(self, namespace: str) -> None:
        """Look again at a namespace whose holdings changed: what its quota leaves and what others
        may reclaim.
        """
        quota = self._state.quotas.get(namespace)
        if self._state.has_guarantees:
            self._worklist.add(*self.waiting.groups.values())
        elif quota is not None and quota.limit is not None:
            self._worklist.add(*self.waiting.by_namespace.get(namespace, {}).values())

    def _set_backfill(self, group: WaitingGroup, backfill: BackfillReservation | None) -> None:
        """Replace or, with None, drop the backfill reservation of the group's first request.

        Groups behind it on the nodes of the old and of the new reservation go on the worklist: what
        they may take there has changed. A reservation does not bind the groups before its own.
        """
        reservation_before, rank = group.backfill, group.backfill_rank
        if backfill == reservation_before:
            return
        self._worklist.add(*self.waiting.groups_behind(reservation_before, group, rank))
        self.waiting.set_backfill(group, backfill)
        self._worklist.add(*self.waiting.groups_behind(backfill, group, group.backfill_rank))

    def _refresh(self) -> None:
        """Step 2: renew views of changed nodes, and put the groups concerned on the worklist."""
        changed = self._views.refresh()
        if not changed:
            return
        if self._views.remade:
            self._fleet_generation += 1
            self.waiting.refresh_filters()
            self._worklist.add(*(g for g in self.waiting.groups.values() if self._fleet_decides(g)))
        if len(self.waiting):
            for node_id in changed:
                view = self._views.nodes.get(node_id)
                self._worklist.add(*self.waiting.reserving_on(node_id))
                if view is not None:
                    concerned = (g for g in self.waiting.groups_on(view) if self._concerns(view, g))
                    self._worklist.add(*concerned)

    def _fleet_decides(self, group: WaitingGroup) -> bool:
        """Return True if a changed fleet may reject the group, or end its reservation of all
        devices.
        """
        return not self._fits(group) or (
            group.backfill is not None and group.backfill.too_many_nodes
        )

    def _concerns(self, view: NodeView, group: WaitingGroup) -> bool:
        """Return True if a node's new state may give a waiting group a place, a backfill or a
        victim.
        """
        shape = group.shape
        return (
            shape.nodes > 1
            or shape.shares is not None
            or self._forecast.may_change(group, view)
            or (
                len(group.filter_index.ready(view)) >= shape.gpus
                and view.has_host_resources(shape.host_resources, NO_HOST_RESOURCES)
            )
            or self._preemption.may_find(group, view)
        )

    def _evaluate(self, item: WorkItem, now: datetime) -> Iterator[Decision]:
        """Take steps 3 to 5 for one request of a group."""
        group, rank, shorter_than = item.group, item.rank, item.shorter_than
        if not self._fits(group):
            reasons = impossible_reasons(self._state.fleet(), group.request)
            yield from self._reject(group, reasons)
            return
        over = self._over_quota(group)
        if over is not None:
            if over.code is ReasonCode.EXCEEDS_QUOTA:
                yield from self._reject(group, (over,))
            else:  # the request waits only for its own namespace, so nothing is reserved for it
                self._set_backfill(group, None)
            return
        entry = group.at(rank)
        if entry is None:
            self._worklist.add_next(group, rank, shorter_than)
            return
        ranked = rank_request(entry.request, rank, now)
        placed = self.search.place(ranked)
        if placed is not None:
            yield self._grant(entry, ranked, placed, now)
            self._worklist.add_next(group, rank, shorter_than)
            return
        if rank == group.rank:
            backfill = self._forecast.reservation_for(group)
            self._set_backfill(group, backfill)
            if self._policy.preemption and (
                self._state.preemptible or self._preemption.may_reclaim(entry)
            ):
                yield from self._preempt(group, ranked, backfill, now)
        seconds = entry.request.expected_duration_seconds
        self._worklist.add_next(
            group, rank, min(shorter_than, seconds if seconds is not None else inf)
        )

    def _grant(
        self, entry: QueuedRequest, ranked: RankedRequest, placed: Placed, now: datetime
    ) -> Grant:
        numbers, parts = tuple(sorted(placed.numbers)), placed.parts
        lease = Lease(
            reservation_id=entry.reservation_id,
            request=entry.request,
            numbers=numbers,
            granted_at=now,
            expected_end_at=ranked.ends_at,
            parts=tuple(parts.get(number, WHOLE) for number in numbers) if parts else (),
            namespace=entry.namespace,
        )
        self.apply(LeaseHeld(lease=lease))
        self._refresh()
        return Grant(reservation_id=entry.reservation_id, placed=placed)

    def _preempt(
        self,
        group: WaitingGroup,
        ranked: RankedRequest,
        backfill: BackfillReservation,
        now: datetime,
    ) -> Iterator[Preempt]:
        """Preempt for the group's first request, unless it could start as soon without that."""
        head, leases = group.head, self._state.leases
        until = later(now, self._policy.preemption_grace_seconds)
        if backfill.shadow_time is not None and backfill.shadow_time <= until:
            return
        preempts = self._preemption.decisions(ranked, group, until)
        for decision in preempts:
            lease = leases[decision.reservation_id]
            waits_for = decision.for_reservation_id
            preempted = replace(lease, preempting_until=until, preempting_for=waits_for)
            self._state.apply(LeaseHeld(lease=preempted))
            yield decision
        if any(preempt.cause is PreemptionCause.GUARANTEE for preempt in preempts):
            self.apply(RequestQueued(entry=replace(head, has_reclaimed=True)))
        self._refresh()

    def _over_quota(self, group: WaitingGroup) -> Reason | None:
        """Requests of a group need equally much, so that a quota forbids all of them or none."""
        return self.quota_reason(group.head) if self._state.quotas else None

    def _reject(self, group: WaitingGroup, reasons: tuple[Reason, ...]) -> Iterator[Rejection]:
        for _, entry in tuple(group.entries):
            self.apply(RequestEnded(reservation_id=entry.reservation_id))
            yield Rejection(reservation_id=entry.reservation_id, reasons=reasons)

    def _time_out(
        self, overdue: Iterable[tuple[Rank, UUID]], now: datetime, *, explain: bool
    ) -> Iterator[TimeOut]:
        """End these requests; those alike share the reasons worked out for the first of them."""
        reasons: dict[tuple[WaitingGroup, float | None], tuple[Reason, ...]] = {}
        waited = []
        for rank, reservation_id in overdue:
            place = self.waiting.places.get(reservation_id)
            if place is None:
                continue
            request = self._state.queue[reservation_id].request
            equivalents = (place[1], request.expected_duration_seconds)
            over = self._over_quota(place[1])
            if not explain:
                reasons[equivalents] = ()
            elif over is not None:
                reasons[equivalents] = (over,)
            elif equivalents not in reasons:
                context = self.search.context(rank_request(request, rank, now))
                reasons[equivalents] = blocking_reasons(context, request)
            waited.append((reservation_id, reasons[equivalents]))
        for reservation_id, why in waited:
            self.apply(RequestEnded(reservation_id=reservation_id))
            yield TimeOut(reservation_id=reservation_id, reasons=why)

    def _fits(self, group: WaitingGroup) -> bool:
        """Return True if the fleet may serve the group some day; checked once per fleet
        generation.
        """
        if not self._state.complete or group.fits_in_generation == self._fleet_generation:
            return True
        if not self.search.can_ever_fit(group.shape, group.request):
            return False
        group.mark_fitting(self._fleet_generation)
        return True
