"""What the scheduler's engine has to obey, said a second time: slow, plain, from the documents.

Nothing here uses the engine's own rules. It judges decisions; it does not make any.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import combinations
from math import inf
from uuid import UUID

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey, SelectorOperator
from schemas.scheduler.reasons import ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, Node, ReadingState
from services.scheduler.domain.model.inputs import (
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
)
from services.scheduler.domain.model.namespaces import Held, Quota, Use

NEVER = {
    ReasonCode.NODE_MISMATCH,
    ReasonCode.MODEL_MISMATCH,
    ReasonCode.UUID_MISMATCH,
    ReasonCode.COMPUTE_CAPABILITY_MISMATCH,
    ReasonCode.LABEL_MISMATCH,
    ReasonCode.INDEX_MISMATCH,
    ReasonCode.SELECTOR_UNKNOWN,
    ReasonCode.INSUFFICIENT_TOTAL_MEMORY,
    ReasonCode.MIG_ENABLED,
    ReasonCode.SHARES_NOT_ENFORCED,
    ReasonCode.NOT_DIVISIBLE,
    ReasonCode.MIG_PROFILE_MISMATCH,
}
NAMED_CAPABILITIES = {"NVIDIA A100": "8.0", "NVIDIA H100": "9.0"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SUBSETS_OF = 6  # leases whose end nobody knows are tried in all combinations up to so many


@dataclass(slots=True)
class KnownState:
    """What the engine was told and what followed from its decisions."""

    nodes: dict[str, Node] = field(default_factory=dict)
    devices: dict[int, Device] = field(default_factory=dict)
    leases: dict[UUID, Lease] = field(default_factory=dict)
    queue: dict[UUID, QueuedRequest] = field(default_factory=dict)
    quotas: dict[str, Quota] = field(default_factory=dict)
    use: Use = field(default_factory=Use)
    complete: bool = False

    def take(self, change: Input) -> None:  # noqa: C901  # one case per input
        """What the engine is told, kept."""
        match change:
            case NodeSeen(node=node):
                self.nodes[node.node_id] = node
            case NodeGone(node_id=node_id):
                self.nodes.pop(node_id, None)
                for number in [n for n, d in self.devices.items() if d.node_id == node_id]:
                    del self.devices[number]
            case DeviceSeen(device=device):
                self.devices[device.number] = device
            case DeviceGone(number=number):
                self.devices.pop(number, None)
            case RequestQueued(entry=entry):
                self.queue[entry.reservation_id] = entry
            case RequestEnded(reservation_id=reservation_id):
                self.queue.pop(reservation_id, None)
            case LeaseHeld(lease=lease):
                self.leases[lease.reservation_id] = lease
            case LeaseEnded(reservation_id=reservation_id):
                self.leases.pop(reservation_id, None)
            case QuotaSet(quota=quota):
                self.quotas[quota.namespace] = quota
            case UseSeen(use=use):
                self.use = use
            case FleetComplete(complete=complete):
                self.complete = complete

    def holders(self) -> dict[int, UUID]:
        """Which lease holds which device; of shared ones any."""
        return {n: lease.reservation_id for lease in self.leases.values() for n in lease.numbers}

    def held_parts(self, living: set[UUID] | None = None) -> Counter[int]:
        """Hundredths of each device that leases hold."""
        held: Counter[int] = Counter()
        for lease in self.leases.values():
            if living is None or lease.reservation_id in living:
                for place, number in enumerate(lease.numbers):
                    held[number] += lease.parts[place] if lease.parts else 100
        return held

    def exceeds_limit(self, entry: QueuedRequest) -> bool:
        """Whether it asks for more than its namespace may ever hold."""
        limit = self.quota(entry.namespace).limit
        return limit is not None and _amount(entry.request) > limit

    def asks_too_much(self, entry: QueuedRequest) -> bool:
        """Whether its namespace would hold more than it may."""
        limit = self.quota(entry.namespace).limit
        return limit is not None and self.held_by(entry.namespace) + _amount(entry.request) > limit

    def quota(self, namespace: str) -> Quota:
        """What an administrator said, if any did."""
        return self.quotas.get(namespace, Quota(namespace=namespace))

    def held_by(self, namespace: str) -> int:
        """Hundredths of GPUs that its leases hold."""
        theirs = {r for r, lease in self.leases.items() if lease.namespace == namespace}
        return sum(self.held_parts(theirs).values())

    @property
    def has_guarantees(self) -> bool:
        """Whether anything is guaranteed to anybody."""
        return any(quota.guaranteed for quota in self.quotas.values())

    def is_guaranteed(self, entry: QueuedRequest) -> bool:
        """Whether its namespace would borrow nothing for it."""
        within = self.held_by(entry.namespace) + _amount(entry.request)
        return within <= self.quota(entry.namespace).guaranteed

    def keeps_guarantee_without(self, victim: Lease) -> bool:
        """Whether its namespace has what is guaranteed to it once all that stops is over."""
        staying = {
            r
            for r, lease in self.leases.items()
            if lease.namespace == victim.namespace
            and lease.preempting_until is None
            and lease is not victim
        }
        return sum(self.held_parts(staying).values()) >= self.quota(victim.namespace).guaranteed

    def ranks(
        self, aging_seconds: float, now: datetime, newcomer: QueuedRequest | None = None
    ) -> dict[UUID, tuple[object, ...]]:
        """The order of the queue, as the document says it."""
        queue = {**self.queue, **({newcomer.reservation_id: newcomer} if newcomer else {})}
        highest = max((entry.request.priority for entry in queue.values()), default=0)
        is_contended = len({entry.namespace for entry in queue.values()} - {""}) > 1
        found: dict[UUID, tuple[object, ...]] = {}
        for reservation_id, entry in queue.items():
            priority = entry.request.priority
            point = timedelta(seconds=aging_seconds)
            if point:
                aged: object = entry.queued_at - priority * point
                tick_end = EPOCH + ((now - EPOCH) // point + 1) * point
                raised = priority + (tick_end - entry.queued_at) // point
            else:
                aged, raised = -priority, priority
            turn: tuple[object, ...] = ()
            if is_contended:
                borrows = not self.is_guaranteed(entry) or not entry.namespace
                levels = {each.request.priority for each in queue.values()}
                behind = max(0, highest - raised) if len(levels) > 1 else 0
                turn = (self.has_guarantees and borrows, behind, self._used(entry.namespace))
            found[reservation_id] = (*turn, aged, entry.arrival)
        return found

    def _used(self, namespace: str) -> float:
        """Its dominant share, now and of late, in millionths of all, over its weight."""
        if not namespace:
            return inf
        leases = [each for each in self.leases.values() if each.namespace == namespace]
        used, window = self.use.by_namespace.get(namespace, Held()), self.use.window_seconds
        shares = [Fraction(0)]
        for held, before, capacity in (
            (self.held_by(namespace), used.hundredths, 100 * len(self.devices)),
            (
                sum(1000 * (le.request.cpu_count or 0) * le.request.nodes for le in leases),
                used.cpu_milli,
                sum(1000 * (node.cpu_count or 0) for node in self.nodes.values()),
            ),
            (
                sum((le.request.host_memory_mb or 0) * le.request.nodes for le in leases),
                used.memory_mb,
                sum(node.memory_total_mb or 0 for node in self.nodes.values()),
            ),
        ):
            if capacity:
                shares.append((Fraction(held) + Fraction(before, window)) / Fraction(capacity))
        return int(max(shares) * 1_000_000 / self.quota(namespace).weight)

    def is_shared(self, number: int) -> bool:
        """Whether leases hold parts of a device."""
        return any(
            part < 100
            for lease in self.leases.values()
            for held, part in zip(lease.numbers, lease.parts, strict=False)
            if held == number
        )

    def groups(self) -> dict[str, list[Device]]:
        """Devices by node."""
        found: dict[str, list[Device]] = {}
        for device in self.devices.values():
            found.setdefault(device.node_id, []).append(device)
        return found

    def free_numbers(self) -> set[int]:
        """Devices that nobody holds, quarantined ones left out."""
        held = self.holders()
        return {
            device.number
            for device in self.devices.values()
            if device.number not in held and device.holder is None and not device.quarantined
        }

    def codes(  # noqa: C901  # one case per reason
        self, device: Device, request: GpuRequest
    ) -> set[ReasonCode]:
        """Every reason of this device by which it does not serve the request now."""
        node = self.nodes.get(device.node_id) or Node(node_id=device.node_id)
        found = static_codes(device, node, request)
        if not node.admitted:
            found.add(ReasonCode.NOT_ADMITTED)
        if node.cluster is not None:
            found.add(ReasonCode.GIVEN_OUT_BY_CLUSTER)
        if node.lost:
            found.add(ReasonCode.NODE_LOST)
        if device.foreign_pids:
            found.add(ReasonCode.FOREIGN_PROCESS)
        if device.unlisted_mb is not None:
            found.add(ReasonCode.PROCESSES_UNKNOWN)
        if device.health is not HealthState.OK:
            found.add(ReasonCode.UNHEALTHY)
        if device.cordoned:
            found.add(ReasonCode.CORDONED)
        if device.quarantined:
            found.add(ReasonCode.QUARANTINED)
        elif request.shares is not None and self.is_shared(device.number):
            found |= {each for each in reading_codes(device, request) if each in OF_AGE}
            if 100 - self.held_parts()[device.number] < max(1, 100 * request.min_free_shares):
                found.add(ReasonCode.INSUFFICIENT_SHARES)
        elif device.number in self.holders() or device.holder is not None:
            found.add(ReasonCode.HELD)
        else:
            found |= set(reading_codes(device, request))
        return found

    def is_impossible(self, request: GpuRequest) -> bool:
        """Whether this fleet can never serve the request, however empty it is."""
        if not self.complete:
            return False
        able: dict[str, list[Device]] = {}
        for node_id, devices in self.groups().items():
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            fitting = [device for device in devices if not static_codes(device, node, request)]
            if _has(node, request, 0.0, 0):
                able[node_id] = fitting
        return not any(
            sum(len(alike[node_id]) >= _least_devices(request) for node_id in alike)
            >= request.nodes
            for alike in _alike(able, request)
        )

    def fits(self, request: GpuRequest, available: set[int], living: set[UUID]) -> bool:
        """Whether the request has a place on these devices while these leases live.

        Devices that are free now count by their readings; others as if they were idle.
        """
        free = self.free_numbers()
        if request.shares is not None:
            return self._fits_shares(request, available, living)
        held = self.held_parts(living)
        usable: dict[str, list[int]] = {}
        for node_id, devices in self.groups().items():
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            if not self._has_room(node, request, living):
                continue
            numbers = [
                device.number
                for device in devices
                if device.number in available
                and not held[device.number]
                and _total(device) is not None  # idle or not, half of it is not known to be free
                and not (
                    self.codes(device, request)
                    - (set() if device.number in free else {ReasonCode.HELD})
                )
            ]
            if len(numbers) >= request.gpus:
                usable[node_id] = numbers
        devices_of = {node: [self.devices[n] for n in numbers] for node, numbers in usable.items()}
        return any(
            self._fits_group(request, {node: [d.number for d in alike[node]] for node in alike})
            for alike in _alike(devices_of, request)
        )

    def _fits_group(self, request: GpuRequest, usable: dict[str, list[int]]) -> bool:
        """Whether it has a place on devices that may all be taken together."""
        if not request.balanced_memory:
            enough = [numbers for numbers in usable.values() if len(numbers) >= request.gpus]
            return len(enough) >= request.nodes
        return any(
            sum(
                sum(0.8 * top <= self._free_mb(n) <= top for n in numbers) >= request.gpus
                for numbers in usable.values()
            )
            >= request.nodes
            for top in {self._free_mb(n) for numbers in usable.values() for n in numbers}
        )

    def has_nearer(self, request: GpuRequest, numbers: frozenset[int]) -> bool:
        """Whether as many free GPUs of a node are nearer; nothing may be kept for others."""
        mine = _distance([self.devices[number] for number in numbers])
        for node_id, devices in self.groups().items():
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            if not self._has_room(node, request, set(self.leases)):
                continue
            usable = [device for device in devices if not self.codes(device, request)]
            sets = (s for s in combinations(usable, request.gpus) if is_one_group(request, s))
            if any(_distance(each) < mine for each in sets):
                return True
        return False

    def _fits_shares(self, request: GpuRequest, available: set[int], living: set[UUID]) -> bool:
        """As above. What living leases hold of a device is taken, also of an available one."""
        held_now, held_then = self.held_parts(), self.held_parts(living)
        for node_id, devices in self.groups().items():
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            if not self._has_room(node, request, living):
                continue
            free: dict[tuple[str, int | None], list[int]] = {}
            for device in devices:
                freed = held_then[device.number] < held_now[device.number]
                passing = {ReasonCode.HELD, ReasonCode.INSUFFICIENT_SHARES} if freed else set()
                left = 100 - held_then[device.number]
                if device.number not in available and not held_then[device.number]:
                    continue
                if not self.codes(device, request) - passing and left >= max(
                    1, round(100 * request.min_free_shares)
                ):
                    kind = ("", None) if request.mixed_models else kind_of(device)
                    free.setdefault(kind, []).append(left)
            if any(_has_shares(request, alike) for alike in free.values()):
                return True
        return False

    def delays(self, waiting: QueuedRequest, mine: Lease, now: datetime) -> bool:
        """Whether a grant on these devices keeps one that waits from starting, at some moment
        before the grant would be over and for some of those leases ending whose end nobody knows.
        """
        seconds = mine.request.expected_duration_seconds
        until = now + timedelta(seconds=seconds) if seconds is not None else None
        free = self.free_numbers()
        known = [le for le in self.leases.values() if _ends_at(le, now) is not None]
        unknown = [le for le in self.leases.values() if _ends_at(le, now) is None]
        ends = {_ends_at(lease, now) for lease in known}
        ends |= {lease.preempting_until for lease in unknown}
        moments = {now} | {
            end for end in ends if end and end > now and (until is None or end < until)
        }
        for at in moments:
            over = [le for le in known if (end := _ends_at(le, now)) and end <= at]
            over += [le for le in unknown if _has_to_stop(le, at)]
            for ended in _subsets([le for le in unknown if not _has_to_stop(le, at)]):
                gone = {le.reservation_id for le in (*over, *ended)}
                available = free | {n for le in (*over, *ended) for n in le.numbers}
                living = self.leases.keys() - gone
                if not self.fits(waiting.request, available, set(living)):
                    continue
                with_grant = KnownState(
                    nodes=self.nodes,
                    devices=self.devices,
                    leases={
                        **self.leases,
                        mine.reservation_id: mine,
                    },
                    complete=self.complete,
                )
                if not with_grant.fits(
                    waiting.request,
                    available - set(mine.numbers),
                    set(living) | {mine.reservation_id},
                ):
                    return True
        return False

    def room_left(self, node_id: str) -> tuple[float, float]:
        """CPUs and memory of a node that no lease holds; negative is what must not be."""
        node = self.nodes.get(node_id) or Node(node_id=node_id)
        cpu, memory_mb = self._held_room(node_id, set(self.leases))
        return (node.cpu_count or 0) - cpu, (node.memory_total_mb or 0) - memory_mb

    def _has_room(self, node: Node, request: GpuRequest, living: set[UUID]) -> bool:
        return _has(node, request, *self._held_room(node.node_id, living))

    def _held_room(self, node_id: str, living: set[UUID]) -> tuple[float, int]:
        cpu, memory_mb = 0.0, 0
        for lease in self.leases.values():
            on_node = any(
                n in self.devices and self.devices[n].node_id == node_id for n in lease.numbers
            )
            if lease.reservation_id in living and on_node:
                cpu += lease.request.cpu_count or 0
                memory_mb += lease.request.host_memory_mb or 0
        return cpu, memory_mb

    def _free_mb(self, number: int) -> int:
        reading = self.devices[number].reading
        return (reading.memory_free_mb or 0) if reading is not None else 0


def static_codes(  # noqa: C901  # one case per reason
    device: Device, node: Node, request: GpuRequest
) -> set[ReasonCode]:
    """Reasons that do not pass by themselves."""
    found: set[ReasonCode] = set()
    if device.mig_enabled and device.parent_uuid is None:
        found.add(ReasonCode.MIG_ENABLED)
    elif request.shares is not None:
        if device.parent_uuid is not None:
            found.add(ReasonCode.NOT_DIVISIBLE)
    elif device.mig_profile != request.mig_profile and not (
        request.mig_profile is None and device.uuid in request.device_uuids
    ):
        found.add(ReasonCode.MIG_PROFILE_MISMATCH)
    if request.node_ids and device.node_id not in request.node_ids:
        found.add(ReasonCode.NODE_MISMATCH)
    if request.device_uuids and device.uuid not in request.device_uuids:
        found.add(ReasonCode.UUID_MISMATCH)
    if request.gpu_models and not any(m.lower() in device.name.lower() for m in request.gpu_models):
        found.add(ReasonCode.MODEL_MISMATCH)
    total = _total(device)
    if (same := request.same_model) is not None and (
        device.name != same.name
        or (total and same.memory_total_mb and kind_of(device)[1] != same.memory_total_mb // 4096)
    ):
        found.add(ReasonCode.MODEL_MISMATCH)
    if request.min_memory_mb is not None and total is not None and total < request.min_memory_mb:
        found.add(ReasonCode.INSUFFICIENT_TOTAL_MEMORY)
    if request.min_compute_capability is not None and "AMD" not in device.name:
        known = device.compute_capability or NAMED_CAPABILITIES.get(device.name)
        if known is None:
            found.add(ReasonCode.SELECTOR_UNKNOWN)
        elif float(known) < float(request.min_compute_capability):
            found.add(ReasonCode.COMPUTE_CAPABILITY_MISMATCH)
    if request.enforced_shares and node.labels.get("gpusteward.io/mps") != "true":
        found.add(ReasonCode.SHARES_NOT_ENFORCED)
    for selector in request.require:
        found |= set(_selector_codes(selector, device, node))
    return found


def reading_codes(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    """Reasons of a free device's reading: what is unknown is never good enough."""
    if device.reading_state is not ReadingState.FRESH:
        yield {
            ReadingState.ABSENT: ReasonCode.NO_READING,
            ReadingState.STALE: ReasonCode.STALE_READING,
            ReadingState.AWAITING: ReasonCode.AWAITING_SNAPSHOT,
        }[device.reading_state]
        return
    reading = device.reading
    used = reading.utilization_percent if reading is not None else None
    free = reading.memory_free_mb if reading is not None else None
    if used is None:
        yield ReasonCode.UTILIZATION_UNKNOWN
    elif used > request.max_utilization_percent:
        yield ReasonCode.UTILIZATION_ABOVE_LIMIT
    total = _total(device)
    if free is None or total is None:
        yield ReasonCode.MEMORY_UNKNOWN
    elif free < (request.min_memory_mb if request.min_memory_mb is not None else total / 2):
        yield ReasonCode.INSUFFICIENT_FREE_MEMORY


def kind_of(device: Device) -> tuple[str, int | None]:
    """Model and memory size, to the nearest 4 GiB."""
    total = _total(device)
    return device.name, None if total is None else round(total / 4096)


def is_one_group(request: GpuRequest, devices: Sequence[Device]) -> bool:
    """Whether these may be granted together."""
    return request.mixed_models or len({kind_of(device) for device in devices}) == 1


def _alike(of_nodes: dict[str, list[Device]], request: GpuRequest) -> list[dict[str, list[Device]]]:
    """The devices of each node that may be granted together, in every way that there is.

    What does not tell its memory may have any that its model has.
    """
    if request.mixed_models:
        return [of_nodes]
    kinds = {kind_of(device) for devices in of_nodes.values() for device in devices}
    return [
        {
            node_id: [d for d in devices if kind_of(d) in {kind, (kind[0], None)}]
            for node_id, devices in of_nodes.items()
        }
        for kind in kinds
    ]


OF_AGE = {ReasonCode.NO_READING, ReasonCode.STALE_READING, ReasonCode.AWAITING_SNAPSHOT}


def _distance(devices: Sequence[Device]) -> int:
    """0 for one NVLink island, 1 for one NUMA node, else 2."""
    names = [device.link_groups for device in devices]
    if len(names) == 1 or (all(names) and len({each[1] for each in names}) == 1):
        return 0
    return 1 if all(names) and len({each[-1] for each in names}) == 1 else 2


def _least_devices(request: GpuRequest) -> int:
    if request.shares is None:
        return request.gpus
    return -(-round(request.shares * 100) // 100)


def _has_shares(request: GpuRequest, free: list[int]) -> bool:
    """Whether devices with so much free can hold the shares as they are asked for."""
    asked = round((request.shares or 0) * 100)
    if sum(free) < asked:
        return False
    if not request.unfragmented:
        return True
    if asked <= 100:
        return max(free) >= asked
    least = min(size for size in range(1, len(free) + 1) if sum(sorted(free)[-size:]) >= asked)
    small, odd = divmod(asked, least)
    there = sorted(free)[-least:]
    return there[0] >= small and sum(amount > small for amount in there) >= odd


def parts_of(request: GpuRequest, parts: dict[int, int]) -> bool:
    """Whether these hundredths of devices are exactly what was asked for."""
    return sum(parts.values()) == round((request.shares or 0) * 100)


def shape_of(request: GpuRequest, numbers: frozenset[int], devices: dict[int, Device]) -> bool:
    """Whether these devices are exactly what was asked for: so many on each of so many nodes."""
    per_node = Counter(devices[number].node_id for number in numbers)
    return sorted(per_node.values()) == [request.gpus] * request.nodes


def _selector_codes(selector: Selector, device: Device, node: Node) -> Iterator[ReasonCode]:
    """For those selectors that the state machine makes."""
    if selector.key is SelectorKey.LABEL:
        value = node.labels.get(selector.label or "")
        if selector.operator is SelectorOperator.NOT_IN:
            matches = value not in selector.values
        else:
            matches = value in selector.values
        if not matches:
            yield ReasonCode.LABEL_MISMATCH
    elif selector.key is SelectorKey.GPU_INDEX:
        if str(device.index) not in selector.values:
            yield ReasonCode.INDEX_MISMATCH
    elif selector.key is SelectorKey.COMPUTE_CAPABILITY:
        if device.compute_capability is None:
            yield ReasonCode.SELECTOR_UNKNOWN
        elif float(device.compute_capability) < float(selector.values[0]):
            yield ReasonCode.COMPUTE_CAPABILITY_MISMATCH
    else:
        raise NotImplementedError(selector)


def _total(device: Device) -> int | None:
    if device.memory_total_mb is not None:
        return device.memory_total_mb
    return device.reading.memory_total_mb if device.reading is not None else None


def _has(node: Node, request: GpuRequest, held_cpu: float, held_memory_mb: int) -> bool:
    if request.cpu_count and (node.cpu_count or 0) - held_cpu < request.cpu_count:
        return False
    memory_mb = request.host_memory_mb
    return not memory_mb or (node.memory_total_mb or 0) - held_memory_mb >= memory_mb


def _ends_at(lease: Lease, now: datetime) -> datetime | None:
    """When a lease is over; None if that may be any time, as with one that was told to stop."""
    if lease.preempting_until is not None:
        return None
    end = lease.expected_end_at
    return end if end is not None and end > now else None


def _has_to_stop(lease: Lease, at: datetime) -> bool:
    """Whether its notice has run out by then."""
    return lease.preempting_until is not None and lease.preempting_until <= at


def _subsets(leases: list[Lease]) -> Iterator[tuple[Lease, ...]]:
    if len(leases) > SUBSETS_OF:
        yield ()
        yield tuple(leases)
        yield from ((lease,) for lease in leases)
        return
    for size in range(len(leases) + 1):
        yield from combinations(leases, size)


def _amount(request: GpuRequest) -> int:
    """Hundredths of GPUs that it holds once it is granted."""
    return round(100 * (request.shares or request.gpus * request.nodes))
