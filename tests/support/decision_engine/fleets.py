"""Devices, nodes and requests of every kind that the engine has to do with, by small numbers."""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from schemas.gpus.gpu_request import (
    GpuModel,
    GpuRequest,
    Placement,
    Preference,
    Selector,
    SelectorKey,
    SelectorOperator,
    ShareStrategy,
)
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, Node, Reading, ReadingState
from shared.gpu.shares import MPS_LABEL

TOTAL_MB = 80_000
NODES = 4
PER_NODE = 4
PLACES = NODES * PER_NODE
A100S = {4, 5, 6, 7, 13, 15}  # all of a node, and two of another
NO_EXTRA = 30  # of so many numbers those beyond the extras ask for nothing


def _selector(key: SelectorKey, operator: SelectorOperator, value: str) -> Selector:
    label = "zone" if key is SelectorKey.LABEL else None
    return Selector(key=key, operator=operator, values=(value,), label=label)


EXTRAS: tuple[dict[str, Any], ...] = (
    {"min_memory_mb": 60_000},
    {"max_utilization_percent": 10.0},
    {"node_ids": ("node-0", "node-1")},
    {"gpu_models": ("a100",)},
    {"balanced_memory": True},
    {"placement": Placement.SPREAD},
    {"cpu_count": 8.0},
    {"host_memory_mb": 40_000},
    {"require": (_selector(SelectorKey.LABEL, SelectorOperator.IN, "a"),)},
    {"require": (_selector(SelectorKey.LABEL, SelectorOperator.NOT_IN, "a"),)},
    {"require": (_selector(SelectorKey.COMPUTE_CAPABILITY, SelectorOperator.AT_LEAST, "8.5"),)},
    {"min_compute_capability": "8.9"},
    {"preemptible": True},
    {"preemptible": True, "placement": Placement.SPREAD},
    {"preemptible": True, "gpu_models": ("h100",)},
    {"prefer": (Preference(selector=Selector(key=SelectorKey.GPU_MODEL, values=("H100",))),)},
    {"device_uuids": tuple(f"GPU-{number}" for number in range(8))},
    {"mig_profile": "1g.10gb"},
    {"mixed_models": True},
    {"mixed_models": True, "balanced_memory": True},
    {"same_model": GpuModel(name="NVIDIA H100", memory_total_mb=40_960)},
    {"same_model": GpuModel(name="NVIDIA A100")},
    {"require": (_selector(SelectorKey.GPU_INDEX, SelectorOperator.IN, "1"),)},
)
MIG: dict[int, str] = {8: "1g.10gb", 9: "2g.20gb"}  # by what else may be wrong with a device
# Of devices of one node; the sizes leave fragments.
SHARES: tuple[dict[str, Any], ...] = (
    {"shares": 0.25},
    {"shares": 0.5},
    {"shares": 0.33},
    {"shares": 1.0},
    {"shares": 1.2},
    {"shares": 1.5, "share_strategy": ShareStrategy.FILL},
    {"shares": 0.6, "unfragmented": True},
    {"shares": 1.4, "unfragmented": True},
    {"shares": 0.2, "min_free_shares": 0.5},
    {"shares": 2.3, "share_strategy": ShareStrategy.FILL},
    {"shares": 0.1, "enforced_shares": True},
)
# Of the GPUs of each node: pairs; one island in two halves; NUMA nodes alone; nothing known.
LINKED: tuple[tuple[tuple[int, ...], ...], ...] = (
    tuple((n, *(n - n % 2,) * 5, 0) for n in range(PER_NODE)),
    tuple((n - n % 2, *(0,) * 6) for n in range(PER_NODE)),
    tuple((*(n,) * 6, 3 * (n > 0)) for n in range(PER_NODE)),
    ((),) * PER_NODE,
)
DURATIONS = (None, 30.0, 90.0, 600.0)


def make_request(
    gpus: int,
    nodes: int,
    extra: int,
    other: int,
    priority: int,
    duration: int,
    shares: int | None = None,
) -> GpuRequest:
    """A request of every shape; `extra` and `other` say what is asked for beside GPUs, if any."""
    chosen: dict[str, Any] = {}
    for number in (extra, other):
        if number < len(EXTRAS):
            chosen |= EXTRAS[number]
    if shares is not None:
        gpus = nodes = 1
        chosen = {**chosen, **SHARES[shares]}
        chosen.pop("balanced_memory", None)
        chosen.pop("mig_profile", None)
    return GpuRequest(
        gpus=gpus,
        nodes=nodes,
        priority=priority,
        expected_duration_seconds=DURATIONS[duration],
        **chosen,
    )


class Shape(NamedTuple):
    """What many requests of one history may have in common."""

    gpus: int
    nodes: int
    extra: int
    other: int
    shares: int | None = None


def _draw_shares(random: Random) -> int | None:
    return random.choice((None, random.randrange(len(SHARES))))


def draw_shapes(random: Random, *, plain: bool) -> list[Shape]:
    """None for histories in which every request is another one; `plain` ones ask for GPUs alone.

    In half of all histories some ask for shares.
    """
    shared = random.random() < 0.5
    if plain:
        sizes = random.sample(range(1, PER_NODE + 1), k=3)
        plain_shapes = [
            Shape(gpus, random.choice((1, 1, 1, 2)), NO_EXTRA, NO_EXTRA) for gpus in sizes
        ]
        if shared:
            plain_shapes += [
                Shape(1, 1, NO_EXTRA, NO_EXTRA, random.randrange(len(SHARES))) for _ in range(3)
            ]
        return plain_shapes
    return [
        Shape(
            gpus=random.choice((1, 1, 1, 2, 2, 3, 4)),
            nodes=random.choice((1, 1, 1, 2, 3)),
            extra=random.choice((NO_EXTRA, random.randint(0, NO_EXTRA))),
            other=random.choice((NO_EXTRA, NO_EXTRA, random.randint(0, NO_EXTRA))),
            shares=_draw_shares(random) if shared else None,
        )
        for _ in range(random.choice((0, 0, 1, 2, 3, 4, 6)))
    ]


def draw_request(random: Random, shapes: Sequence[Shape]) -> GpuRequest:
    """Mostly of one of the shapes; what decides its turn and its end is drawn for each."""
    shape = Shape(
        gpus=random.choice((1, 1, 1, 2, 2, 3, 4, 5)),
        nodes=random.choice((1, 1, 1, 2, 3)),
        extra=random.randint(0, NO_EXTRA),
        other=random.randint(0, NO_EXTRA),
        shares=_draw_shares(random) if any(s.shares is not None for s in shapes) else None,
    )
    if shapes and random.random() < 0.8:
        shape = random.choice(shapes)
    return make_request(
        **shape._asdict(),
        priority=random.choice((0, 0, 0, 1, 5, -2, 20)),
        duration=random.randrange(len(DURATIONS)),
    )


FRESH = ReadingState.FRESH
# State, utilization, free memory; most readings are those of an idle GPU, or good enough for some.
READINGS: tuple[tuple[ReadingState, float | None, int | None], ...] = (
    (FRESH, 0.0, TOTAL_MB),
    (FRESH, 0.0, TOTAL_MB),
    (FRESH, 30.0, TOTAL_MB),
    (FRESH, 80.0, TOTAL_MB),
    (FRESH, 0.0, 65_000),
    (FRESH, 0.0, 50_000),
    (FRESH, 0.0, 10_000),
    (FRESH, None, TOTAL_MB),
    (FRESH, 0.0, None),
    (ReadingState.STALE, 0.0, TOTAL_MB),
    (ReadingState.ABSENT, 0.0, TOTAL_MB),
    (ReadingState.AWAITING, 0.0, TOTAL_MB),
)


def make_device(place: int, reading: int, trouble: int) -> Device:
    """Device `place` of the fleet; `trouble` is what else may be wrong with it."""
    state, used, free_mb = READINGS[reading]
    return Device(
        number=place,
        node_id=f"node-{place // PER_NODE}",
        uuid=f"GPU-{place}",
        index=place % PER_NODE,
        name="NVIDIA A100" if place in A100S else "NVIDIA H100",
        memory_total_mb=None if trouble == 5 else 40_000 if trouble == 6 else TOTAL_MB,
        health=HealthState.LOST if trouble == 1 else HealthState.OK,
        cordoned=trouble == 2,
        foreign_pids=(4711,) if trouble == 3 and place % 2 else (),
        unlisted_mb=900 if trouble == 3 and not place % 2 else None,
        mig_enabled=trouble == 4,
        parent_uuid="GPU-divided" if trouble in MIG else None,
        mig_profile=MIG.get(trouble),
        link_groups=LINKED[place // PER_NODE][place % PER_NODE],
        compute_capability=None if trouble == 7 else "9.0" if place % 2 else "8.0",
        reading_state=state,
        reading=None
        if state is ReadingState.ABSENT
        else Reading(utilization_percent=used, memory_total_mb=TOTAL_MB, memory_free_mb=free_mb),
    )


def make_node(number: int, kind: int) -> Node:
    return Node(
        node_id=f"node-{number}",
        labels={"zone": "a", MPS_LABEL: "true"} if number % 2 == 0 else {},
        cpu_count=None if kind == 6 else 16.0,
        memory_total_mb=None if kind == 7 else 64_000,
        lost=kind == 5,
        admitted=kind != 4,
        cluster="k8s" if kind == 3 else None,
    )
