"""How fast the scheduler's engine decides on one core: a real cluster's fleet and its requests.

A decision is one request that arrives or one holder that leaves: told to the engine and decided,
with every grant, rejection or preemption that follows from it. Reading what was decided, the
database and the bus are not in it. Times are CPU time of the one thread that decides.

`GPUSTEWARD_TEST_DATA` names a directory with `openb/`, the GPU cluster that Alibaba published:
1,213 nodes, 6,212 GPUs and 8,152 pods, each taken to want whole GPUs. Without it a fleet and a
stream of the same size and shape are made up, and the table says so.
"""

import csv
import heapq
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final
from uuid import UUID

from rich.console import Console
from rich.table import Table

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.demand import DemandClass
from services.scheduler.domain.model.fleet import Device, Node, Reading, ReadingState
from services.scheduler.domain.model.inputs import (
    DemandSeen,
    DeviceSeen,
    FleetComplete,
    Input,
    LeaseEnded,
    NodeSeen,
    QueuedRequest,
    RequestQueued,
)
from services.scheduler.domain.placement.decisions import Decision, Grant
from services.scheduler.domain.placement.density import class_of, demand_of
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
LEARNED_EVERY: Final = 100  # requests
POLICY: Final = Policy()
WAITING: Final = 10_000
PROBES: Final = 2_000
LONG: Final = 30 * 24 * 3600.0
MEMORY_MB: Final = {
    "A10": 23_028,
    "G2": 15_360,
    "G3": 40_960,
    "P100": 16_384,
    "T4": 15_360,
    "V100M16": 16_384,
    "V100M32": 32_768,
}
# Model, GPUs of a node, nodes: the shape of the cluster, for where its files are not at hand.
SHAPE: Final = (
    ("G2", 8, 549),
    ("T4", 2, 387),
    ("P100", 2, 131),
    ("G3", 8, 39),
    ("V100M16", 4, 28),
    ("V100M32", 8, 21),
    ("V100M16", 1, 19),
    ("T4", 4, 17),
    ("V100M32", 4, 9),
    ("V100M16", 8, 8),
    ("P100", 1, 3),
    ("A10", 1, 2),
)
SIZES: Final = ((1, 6989), (2, 16), (4, 15), (8, 44))


@dataclass(frozen=True)
class Pod:
    """A request with the time at which it comes and for how long it then runs."""

    at_seconds: float
    seconds: float
    request: GpuRequest


@dataclass(frozen=True)
class Workload:
    """A cluster's nodes with their GPUs, and what was asked of it."""

    source: str
    nodes: tuple[tuple[Node, tuple[Device, ...]], ...]
    pods: tuple[Pod, ...]

    @property
    def gpus(self) -> int:
        """How many there are."""
        return sum(len(devices) for _, devices in self.nodes)

    def inputs(self) -> Iterator[Input]:
        """The idle fleet, as the engine is told of it."""
        yield FleetComplete(complete=True)
        for node, devices in self.nodes:
            yield NodeSeen(node=node)
            for device in devices:
                yield DeviceSeen(device=device)


@dataclass(frozen=True)
class Run:
    """CPU time of each decision, in seconds, and what came of them."""

    seconds: tuple[float, ...]
    granted: int
    waited: int
    longest_queue: int

    @property
    def per_second(self) -> float:
        """Decisions in a second of CPU time."""
        return len(self.seconds) / sum(self.seconds)

    @property
    def p99_ms(self) -> float:
        """99 of 100 take no longer."""
        return statistics.quantiles(self.seconds, n=100)[98] * 1000


def load() -> Workload:
    """The published cluster if it is at hand, else one like it."""
    directory = os.environ.get("GPUSTEWARD_TEST_DATA")
    path = Path(directory) / "openb" if directory else None
    if path is not None and (path / "openb_node_list_gpu_node.csv").exists():
        return _published(path)
    return _made_up()


def measure_stream(workload: Workload, policy: Policy = POLICY) -> Run:
    """All pods come, wait, run and leave at their times; the demand is learned as they come."""
    engine = DecisionEngine(policy)
    engine.apply(*workload.inputs())
    engine.decide(BEGINNING)
    seconds: list[float] = []
    ends: list[tuple[float, UUID]] = []
    arrivals = count(1)
    durations: dict[UUID, float] = {}
    granted = waited = longest = 0

    asked: Counter[DemandClass] = Counter()

    def decided(at: float, change: Input) -> set[UUID]:
        nonlocal granted
        decisions, took = _decide(engine, change, at)
        seconds.append(took)
        for decision in decisions:
            if isinstance(decision, Grant):
                granted += 1
                end = at + durations[decision.reservation_id]
                heapq.heappush(ends, (end, decision.reservation_id))
        return {decision.reservation_id for decision in decisions}

    for pod in sorted(workload.pods, key=lambda pod: pod.at_seconds):
        while ends and ends[0][0] <= pod.at_seconds:
            at, reservation_id = heapq.heappop(ends)
            decided(at, LeaseEnded(reservation_id=reservation_id))
        entry = _entry(next(arrivals), pod.request, pod.at_seconds)
        durations[entry.reservation_id] = pod.seconds
        asked[class_of(pod.request)] += 1
        if policy.density and entry.arrival % LEARNED_EVERY == 0:
            engine.apply(DemandSeen(demand=demand_of(asked)))
        about = decided(pod.at_seconds, RequestQueued(entry=entry))
        waited += entry.reservation_id not in about
        longest = max(longest, engine.queue_length)
    return Run(tuple(seconds), granted, waited, longest)


def measure_waiting(
    workload: Workload, rounds: int = 1, waiting: int = WAITING, probes: int = PROBES
) -> list[float]:
    """Return what a decision costs with so many requests waiting that it does not concern, over one
    with none waiting: the median over many of each round, of both engines in turn.

    All that wait differ in what they ask for, and ask for GPUs of one model, which are all held.
    The fleet is half full.
    """
    alone, crowded = DecisionEngine(), DecisionEngine()
    for engine in (alone, crowded):
        engine.apply(*workload.inputs())
        _fill(engine, workload)
    for number in range(waiting):
        request = GpuRequest(
            gpus=1 + number % 8,
            gpu_models=("V100M32",),
            min_memory_mb=number,
            cpu_count=1 + number % 7,
            expected_duration_seconds=600.0 if number % 2 else None,
            wait_timeout_seconds=LONG,
        )
        crowded.apply(RequestQueued(entry=_entry(1_000_000 + number, request, 0.0)))
    crowded.decide(BEGINNING)
    assert crowded.queue_length == waiting
    spent: tuple[list[float], list[float]] = ([], [])
    ratios = []
    for probe in range(probes):
        request = GpuRequest(gpus=1 + probe % 2, gpu_models=("G2",), cpu_count=2)
        entry = _entry(2_000_000 + probe, request, 1.0)
        for which, engine in enumerate((alone, crowded)):
            decisions, took = _decide(engine, RequestQueued(entry=entry), 1.0)
            assert [type(decision) for decision in decisions] == [Grant]
            _, leaving = _decide(engine, LeaseEnded(reservation_id=entry.reservation_id), 1.0)
            spent[which].extend((took, leaving))
        if (probe + 1) % (probes // rounds) == 0:
            ratios.append(statistics.median(spent[1]) / statistics.median(spent[0]))
            spent = ([], [])
    return ratios


def figures(workload: Workload | None = None) -> dict[str, float]:
    """All figures of the engine, by the names of the benchmark's last line."""
    workload = workload or load()
    run = measure_stream(workload)
    dense = measure_stream(workload, Policy(density=True))
    return {
        "decisions_per_s_default": round(run.per_second),
        "decisions_per_s_density": round(dense.per_second),
        "decision_p99_ms": round(run.p99_ms, 3),
        "decision_cost_ratio_10k_waiting": round(measure_waiting(workload)[0], 2),
    }


def _decide(engine: DecisionEngine, change: Input, at: float) -> tuple[tuple[Decision, ...], float]:
    now = BEGINNING + timedelta(seconds=at)
    began = time.thread_time()
    engine.apply(change)
    decisions = engine.decide(now)
    return decisions, time.thread_time() - began


def _entry(number: int, request: GpuRequest, at: float) -> QueuedRequest:
    queued_at = BEGINNING + timedelta(seconds=at)
    return QueuedRequest(
        reservation_id=UUID(int=number),
        request=request,
        arrival=number,
        wait_deadline_at=queued_at + timedelta(seconds=request.wait_timeout_seconds),
        queued_at=queued_at,
    )


def _fill(engine: DecisionEngine, workload: Workload) -> None:
    """Hold all GPUs of one model, and half of the others."""
    models: dict[str, int] = {}
    for _, devices in workload.nodes:
        models[devices[0].name] = models.get(devices[0].name, 0) + len(devices)
    number = count(3_000_000)
    for model, gpus in models.items():
        for _ in range(gpus if model == "V100M32" else gpus // 2):
            request = GpuRequest(gpu_models=(model,))
            engine.apply(RequestQueued(entry=_entry(next(number), request, 0.0)))
    engine.decide(BEGINNING)
    assert engine.queue_length == 0


def read_nodes(path: Path) -> list[tuple[Node, tuple[Device, ...]]]:
    """The published cluster's nodes with their GPUs."""
    with (path / "openb_node_list_gpu_node.csv").open() as file:
        rows = [
            (
                row["sn"],
                float(row["cpu_milli"]) / 1000,
                int(row["memory_mib"]),
                int(row["gpu"]),
                row["model"],
            )
            for row in csv.DictReader(file)
        ]
    return list(_nodes(rows))


def _published(path: Path) -> Workload:
    with (path / "openb_pod_list_default.csv").open() as file:
        pods = tuple(_pod(row) for row in csv.DictReader(file) if int(row["num_gpu"]))
    return Workload(f"the published cluster in {path}", tuple(read_nodes(path)), pods)


def _pod(row: dict[str, str]) -> Pod:
    created, deleted = float(row["creation_time"]), float(row["deletion_time"])
    begun = float(row["scheduled_time"] or created)
    seconds = max(1.0, deleted - begun)
    request = GpuRequest(
        gpus=int(row["num_gpu"]),
        gpu_models=tuple(model for model in row["gpu_spec"].split("|") if model),
        cpu_count=float(row["cpu_milli"]) / 1000,
        host_memory_mb=int(row["memory_mib"]),
        expected_duration_seconds=seconds,
        wait_timeout_seconds=LONG,
    )
    return Pod(created, seconds, request)


def _made_up() -> Workload:
    seeded = random.Random(1)
    nodes = [
        (f"node-{model}-{gpus}-{place}", 12.0 * gpus + 32, 96_000 + 32_000 * gpus, gpus, model)
        for model, gpus, number in SHAPE
        for place in range(number)
    ]
    sizes = [size for size, number in SIZES for _ in range(number)]
    pods = []
    for size in seeded.sample(sizes, len(sizes)):
        seconds = round(seeded.lognormvariate(11, 2)) + 60.0
        request = GpuRequest(
            gpus=size,
            cpu_count=float(seeded.choice((4, 6, 8, 11, 12))) * size,
            host_memory_mb=seeded.choice((12_288, 16_384, 24_576, 30_517)) * size,
            expected_duration_seconds=seconds,
            wait_timeout_seconds=LONG,
        )
        pods.append(Pod(seeded.uniform(0, 13_000_000), seconds, request))
    return Workload(
        "a made-up cluster of the same size and shape", tuple(_nodes(nodes)), tuple(pods)
    )


def _nodes(
    nodes: Iterable[tuple[str, float, int, int, str]],
) -> Iterator[tuple[Node, tuple[Device, ...]]]:
    numbers = count(1)
    for name, cpus, memory_mb, gpus, model in nodes:
        node = Node(node_id=name, cpu_count=cpus, memory_total_mb=memory_mb)
        total = MEMORY_MB[model]
        reading = Reading(utilization_percent=0.0, memory_total_mb=total, memory_free_mb=total)
        yield (
            node,
            tuple(
                Device(
                    number=next(numbers),
                    node_id=name,
                    uuid=f"{name}-{index}",
                    index=index,
                    name=model,
                    memory_total_mb=total,
                    reading_state=ReadingState.FRESH,
                    reading=reading,
                )
                for index in range(gpus)
            ),
        )


def main() -> None:
    """Measure, print the table, print the JSON line."""
    workload = load()
    run = measure_stream(workload)
    dense = measure_stream(workload, Policy(density=True))
    (ratio,) = measure_waiting(workload)
    table = Table("figure", "value", title=f"{workload.gpus:,} GPUs, {workload.source}")
    table.add_row("decisions", f"{len(run.seconds):,}")
    table.add_row("granted", f"{run.granted:,}")
    table.add_row("had to wait", f"{run.waited:,}, at most {run.longest_queue:,} at once")
    table.add_row("decisions/s", f"{run.per_second:,.0f}")
    table.add_row("decisions/s with the density policy", f"{dense.per_second:,.0f}")
    quantiles = statistics.quantiles(run.seconds, n=1000)
    for name, place in (("p50", 499), ("p90", 899), ("p99", 989), ("p99.9", 998)):
        table.add_row(f"{name} ms", f"{quantiles[place] * 1000:.3f}")
    table.add_row("longest ms", f"{max(run.seconds) * 1000:.3f}")
    table.add_row(f"cost with {WAITING:,} others waiting", f"{ratio:.2f} times")
    Console().print(table)
    result = {
        "decisions_per_s_default": round(run.per_second),
        "decisions_per_s_density": round(dense.per_second),
        "decision_p99_ms": round(run.p99_ms, 3),
        "decision_cost_ratio_10k_waiting": round(ratio, 2),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
