"""The `density` policy: what a place costs usual requests, in how many fewer of them fit.

A node is worth, over the classes of requests, how many of each fit if nothing else came:
half counted by room for CPUs and memory, half by GPUs on which one fits at all. The second half
alone is near to Fragmentation Gradient Descent (USENIX ATC '23); the first sees what strands when
the node's CPUs, its memory and its GPUs do not run out together. A grant goes where it takes the
least worth. A class that insists on a model counts only on nodes that have it, so that others
leave these alone, and no price of a model has to be set.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from schemas.gpus.gpu_request import WHOLE, GpuRequest
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.demand import Demand, DemandClass
from services.scheduler.domain.model.fleet import Device, Host
from services.scheduler.domain.placement.shares import hundredths_of
from shared.gpu.model_names import matches_model

MAX_CLASSES: Final = 64
# Between one vote for each class (0) and one for each request (1): what was requested often is
# requested again, what was requested once is not forgotten.
FLATTENING: Final = 0.75
WEIGHT_OF_ONE: Final = 100  # weights are integers, so that sums are the same in any order
ROUNDED_TO: Final = 1e-6  # of one request; nearer ones tie, and the fuller node wins
MAX_KNOWN: Final = 100_000
UNKNOWN: Final = 1 << 40  # capacity that a node does not report: GPUs alone decide

# What fits before the first request: half a GPU, and 1 to 8 whole ones with 8 CPUs, 32 GiB each.
PRIOR: Final = (
    DemandClass(hundredths=50, cpu_milli=4_000, memory_mb=16_384),
    *(
        DemandClass(hundredths=n * WHOLE, cpu_milli=n * 8_000, memory_mb=n * 32_768)
        for n in (1, 2, 4, 8)
    ),
)


def class_of(request: GpuRequest) -> DemandClass:
    """Return what the request takes of each of its nodes; parts of several GPUs count as whole."""
    hundredths = hundredths_of(request) if request.shares is not None else request.gpus * WHOLE
    return DemandClass(
        hundredths=hundredths if hundredths < WHOLE else -(-hundredths // WHOLE) * WHOLE,
        cpu_milli=_milli(request.cpu_count or 0.0),
        memory_mb=request.host_memory_mb or 0,
        gpu_models=request.gpu_models,
    )


def demand_of(counts: Mapping[DemandClass, int]) -> Demand:
    """The most frequent classes with their weights; each of the prior counts once more."""
    weight_by_class = dict.fromkeys(PRIOR, 1)
    for demand_class, count in counts.items():
        weight_by_class[demand_class] = weight_by_class.get(demand_class, 0) + count
    often = sorted(weight_by_class.items(), key=lambda item: (-item[1], item[0]))[:MAX_CLASSES]
    return Demand(classes=tuple((c, round(WEIGHT_OF_ONE * n**FLATTENING)) for c, n in often))


class Room(Struct, frozen=True, cache_hash=True):
    """What a node has free, as far as it decides what fits: parts of its GPUs, in order."""

    free: tuple[int, ...]
    cpu_milli: int
    memory_mb: int
    models: tuple[str, ...]

    @classmethod
    def of(cls, devices: Sequence[Device], host: Host) -> "Room":
        """A node's, without GPUs that are out of service."""
        node, held_resources = host.node, host.held_resources
        usable = [d for d in devices if not d.cordoned and d.health is HealthState.OK]
        cpus, memory = node.cpu_count, node.memory_total_mb
        return cls(
            tuple(sorted(device.free_hundredths for device in usable)),
            _milli(cpus - held_resources.cpu_count) if cpus is not None else UNKNOWN,
            memory - held_resources.memory_mb if memory is not None else UNKNOWN,
            tuple(sorted({device.name for device in usable})),
        )

    def without(self, demand: DemandClass, parts: Iterable[tuple[int, int]] = ()) -> "Room":
        """After a grant of whole GPUs, or of `parts`: of so much free, so much taken."""
        free = list(self.free)
        for free_before, part in parts or [(WHOLE, WHOLE)] * (demand.hundredths // WHOLE):
            if free_before in free:
                free.remove(free_before)
                free.append(free_before - part)
        return Room(
            tuple(sorted(free)),
            self.cpu_milli - demand.cpu_milli,
            self.memory_mb - demand.memory_mb,
            self.models,
        )


class RoomCost(Protocol):
    """What a grant costs one demand where this is free, as `Density.cost` says it."""

    def __call__(self, room: Room, *, parts: tuple[tuple[int, int], ...] = ()) -> float: ...


class Density:
    """Costs of places under one demand, remembered for rooms that are alike."""

    def __init__(self, demand: Demand) -> None:
        self._classes = demand.classes
        self._total = sum(weight for _, weight in demand.classes)
        self._suiting: dict[tuple[str, ...], list[tuple[int, int, int, int]]] = {}
        self._worth: dict[Room, float] = {}
        self._cost: dict[tuple[object, ...], float] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Density) and self._classes == other._classes

    def __hash__(self) -> int:
        return hash(self._classes)

    def cost(
        self, room: Room, demand: DemandClass, parts: tuple[tuple[int, int], ...] = ()
    ) -> float:
        """Return how many fewer requests of the demand fit on average after this grant."""
        key = (room, demand, parts)
        cost = self._cost.get(key)
        if cost is None:
            lost = self.value(room) - self.value(room.without(demand, parts))
            if len(self._cost) >= MAX_KNOWN:
                self._cost.clear()
            cost = self._cost[key] = round(lost / ROUNDED_TO / self._total) * ROUNDED_TO
        return cost

    def value(self, room: Room) -> float:
        """Weighted requests that fit."""
        value = self._worth.get(room)
        if value is None:
            if len(self._worth) >= MAX_KNOWN:
                self._worth.clear()
            value = self._worth[room] = self._sum(room)
        return value

    def _sum(self, room: Room) -> float:
        cpu_milli, memory_mb, total = room.cpu_milli, room.memory_mb, 0.0
        whole_count = room.free.count(WHOLE)
        broken = [free for free in room.free if 0 < free < WHOLE]
        if not whole_count and not broken:
            return 0.0
        for size, cpu, memory, weight in self._suiting_on(room.models):
            if cpu > cpu_milli or memory > memory_mb:
                continue
            if size < WHOLE:
                often, reached = whole_count * (WHOLE // size), whole_count * WHOLE
                for free in broken:
                    if free >= size:
                        often += free // size
                        reached += free
            else:
                often, reached = whole_count * WHOLE // size, whole_count * WHOLE
            if often:
                by_cpu = cpu_milli // cpu if cpu else often
                by_memory = memory_mb // memory if memory else often
                total += weight * (min(often, by_cpu, by_memory) + reached / size)
        return total / 2

    def _suiting_on(self, models: tuple[str, ...]) -> list[tuple[int, int, int, int]]:
        suiting = self._suiting.get(models)
        if suiting is None:
            suiting = self._suiting[models] = [
                (demand_class.hundredths, demand_class.cpu_milli, demand_class.memory_mb, weight)
                for demand_class, weight in self._classes
                if any(matches_model(name, demand_class.gpu_models) for name in models)
            ]
        return suiting


def _milli(cpus: float) -> int:
    return round(cpus * 1000)
