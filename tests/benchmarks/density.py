"""How much of a production cluster's GPUs is allocated: our policies beside six published ones.

The cluster and its tasks are Alibaba's cluster-trace-gpu-v2023, the protocol that of "Beware of
Fragmentation" (USENIX ATC '23): tasks in random order, then drawn at random until their demand is
130 % of the GPUs; one after another is placed, none leaves, what fits nowhere is dropped. The
figure is the percentage of all GPUs that is allocated when 100 % and when 130 % have arrived.

`OPENB_DIR` is the folder of the traces, `OPENB_TRACES` names those to run, separated by commas
(unset: the published ones), `OPENB_SEEDS` says how many orders to take the mean of (1; the
published figures are of 10). The engine chooses; tasks that need no GPU, which we never serve, are
placed by the same policy. The demand is learned from the tasks so far, at every 100th.
"""

import csv
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Final
from uuid import UUID

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from schemas.gpus.gpu_request import WHOLE, GpuRequest
from services.scheduler.domain.model.demand import DemandClass
from services.scheduler.domain.model.fleet import Device, Node
from services.scheduler.domain.model.inputs import (
    DemandSeen,
    DeviceSeen,
    FleetComplete,
    Lease,
    LeaseHeld,
    NodeSeen,
    arriving_request,
)
from services.scheduler.domain.placement.density import Density, Room, class_of, demand_of
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.benchmarks.scheduler_engine import BEGINNING, read_nodes

LEARNED_EVERY: Final = 100
OVERLOAD: Final = 1.3
WHERE: Final = "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023"
PUBLISHED_POLICIES: Final = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD")
# Percent allocated at 130 % arrived, in the order of the policies.
PUBLISHED: Final = {
    "default": (87.47, 90.85, 91.88, 92.00, 93.08, 95.39),
    "cpu100": (89.11, 91.95, 92.64, 92.72, 93.44, 95.35),
    "gpushare40": (86.00, 89.56, 90.02, 90.03, 91.69, 94.15),
    "gpuspec10": (87.43, 90.39, 92.18, 92.46, 93.31, 94.95),
    "multigpu20": (88.69, 92.06, 93.56, 93.71, 93.93, 95.65),
}


@dataclass(frozen=True, order=True)
class Task:
    """What a task asks for; hundredths of GPUs, 0 of one that needs none."""

    name: str
    hundredths: int
    cpu_milli: int
    memory_mb: int
    gpu_models: tuple[str, ...]

    @property
    def request(self) -> GpuRequest:
        """As our users would ask for it."""
        whole = self.hundredths >= WHOLE
        return GpuRequest(
            gpus=self.hundredths // WHOLE if whole else 1,
            shares=None if whole else self.hundredths / WHOLE,
            unfragmented=not whole,  # the protocol's parts are of one GPU
            gpu_models=self.gpu_models,
            cpu_count=self.cpu_milli / 1000,
            host_memory_mb=self.memory_mb,
        )


@dataclass
class Left:
    """What of a node no task has: of each GPU hundredths, by its number."""

    cpu_milli: int
    memory_mb: int
    gpus: dict[int, int]

    def take(self, task: Task, parts: dict[int, int]) -> None:
        """Never more than there is, whatever the engine says."""
        self.cpu_milli -= task.cpu_milli
        self.memory_mb -= task.memory_mb
        for number, part in parts.items():
            self.gpus[number] -= part
        assert min(self.cpu_milli, self.memory_mb, *self.gpus.values()) >= 0


class Cluster:
    """An empty cluster that one policy fills."""

    def __init__(self, nodes: list[tuple[Node, tuple[Device, ...]]], policy: Policy) -> None:
        self.allocated = 0
        self._engine = DecisionEngine(policy)
        self._density = Density(demand_of({})) if policy.density else None
        self._nodes = {node.node_id: node for node, _ in nodes}
        self._left = {
            node.node_id: Left(
                round((node.cpu_count or 0) * 1000),
                node.memory_total_mb or 0,
                {device.number: WHOLE for device in devices},
            )
            for node, devices in nodes
        }
        self._models = {node.node_id: (devices[0].name,) for node, devices in nodes}
        self._leases = 0
        self._engine.apply(FleetComplete(complete=True))
        for node, devices in nodes:
            self._engine.apply(NodeSeen(node=node), *(DeviceSeen(device=d) for d in devices))
        self._engine.decide(BEGINNING)

    def learn(self, counts: Counter[DemandClass]) -> None:
        """Tell the engine what was asked for so far."""
        if self._density is not None:
            demand = demand_of(counts)
            self._density = Density(demand)
            self._engine.apply(DemandSeen(demand=demand))

    def place(self, task: Task) -> None:
        """Place a task, or drop it."""
        if not task.hundredths:
            self._place_without_gpu(task)
            return
        request = task.request
        with self._engine.what_if(BEGINNING) as what_if:
            placed = what_if.place(arriving_request(request, BEGINNING))
        if placed is None:
            return
        self._leases += 1
        numbers, parts = tuple(sorted(placed.numbers)), placed.parts
        lease = Lease(
            reservation_id=UUID(int=self._leases),
            request=request,
            numbers=numbers,
            granted_at=BEGINNING,
            expected_end_at=None,
            parts=tuple(parts.get(number, WHOLE) for number in numbers) if parts else (),
        )
        self._engine.apply(LeaseHeld(lease=lease))
        assert whole_or_one_part(task, parts), "expected whole GPUs or a part of one"
        taken = {number: parts.get(number, WHOLE) for number in numbers}
        self._left[placed.node_id].take(task, taken)
        self.allocated += task.hundredths

    def _place_without_gpu(self, task: Task) -> None:
        fitting = [
            node_id
            for node_id, left in self._left.items()
            if left.cpu_milli >= task.cpu_milli and left.memory_mb >= task.memory_mb
        ]
        if not fitting:
            return
        asked = DemandClass(hundredths=0, cpu_milli=task.cpu_milli, memory_mb=task.memory_mb)

        def order(node_id: str) -> tuple[float, float, str]:
            left = self._left[node_id]
            fill = sum(left.gpus.values()) / len(left.gpus)
            if self._density is None:
                return 0.0, fill, node_id
            free = tuple(sorted(left.gpus.values()))
            room = Room(free, left.cpu_milli, left.memory_mb, self._models[node_id])
            return self._density.cost(room, asked), fill, node_id

        chosen = min(fitting, key=order)
        self._left[chosen].take(task, {})
        node = self._nodes[chosen]
        self._nodes[chosen] = replace(
            node,
            cpu_count=((node.cpu_count or 0) * 1000 - task.cpu_milli) / 1000,
            memory_total_mb=(node.memory_total_mb or 0) - task.memory_mb,
        )
        self._engine.apply(NodeSeen(node=self._nodes[chosen]))


def whole_or_one_part(task: Task, parts: dict[int, int]) -> bool:
    """Whether a grant is as the protocol has it, whatever our own shares allow."""
    return list(parts.values()) == ([task.hundredths] if task.hundredths < WHOLE else [])


def measure(directory: Path, trace: str, policy: Policy, seed: int) -> tuple[float, float]:
    """Percent of the GPUs allocated when 100 % and when 130 % have arrived."""
    nodes = read_nodes(directory)
    capacity = WHOLE * sum(len(devices) for _, devices in nodes)
    cluster, counts = Cluster(nodes, policy), Counter[DemandClass]()
    arrived, at_100 = 0, 0.0
    for place, task in enumerate(_arrivals(_tasks(directory, trace), capacity, seed), start=1):
        cluster.place(task)
        arrived += task.hundredths
        if task.hundredths:
            counts[class_of(task.request)] += 1
        if place % LEARNED_EVERY == 0:
            cluster.learn(counts)
        if arrived >= capacity and not at_100:
            at_100 = 100 * cluster.allocated / capacity
    return at_100, 100 * cluster.allocated / capacity


def _arrivals(tasks: list[Task], capacity: int, seed: int) -> Iterator[Task]:
    seeded = random.Random(seed)
    arrived = 0
    for task in seeded.sample(tasks, len(tasks)):
        arrived += task.hundredths
        yield task
    while arrived < OVERLOAD * capacity:
        task = seeded.choice(tasks)
        arrived += task.hundredths
        yield task


def _tasks(directory: Path, trace: str) -> list[Task]:
    with (directory / f"openb_pod_list_{trace}.csv").open() as file:
        return sorted(
            Task(
                name=row["name"],
                hundredths=int(row["num_gpu"]) * int(row["gpu_milli"] or 0) * WHOLE // 1000,
                cpu_milli=int(row["cpu_milli"]),
                memory_mb=int(row["memory_mib"]),
                gpu_models=tuple(
                    model for model in (row.get("gpu_spec") or "").split("|") if model
                ),
            )
            for row in csv.DictReader(file)
        )


def _measure(job: tuple[Path, str, bool, int]) -> tuple[float, float]:
    directory, trace, density, seed = job
    return measure(directory, trace, Policy(density=density), seed)


def main() -> None:
    """Measure, print the table, print the JSON line."""
    directory = Path(os.environ.get("OPENB_DIR", ""))
    if not (directory / "openb_node_list_gpu_node.csv").exists():
        sys.exit(f"OPENB_DIR names no folder with openb_node_list_gpu_node.csv; it is in {WHERE}")
    traces = [name for name in os.environ.get("OPENB_TRACES", "").split(",") if name]
    seeds = range(int(os.environ.get("OPENB_SEEDS", "1")))
    traces = traces or list(PUBLISHED)
    jobs = [(directory, t, density, s) for t in traces for density in (True, False) for s in seeds]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(jobs, pool.map(_measure, jobs), strict=True))
    table = Table(
        "trace",
        *PUBLISHED_POLICIES,
        "our default",
        "density",
        title=f"percent allocated at 130 % arrived (at 100 %), mean of {len(seeds)}",
    )
    result = {}
    for trace in traces:
        means = {
            density: [mean(found[directory, trace, density, s][at] for s in seeds) for at in (0, 1)]
            for density in (True, False)
        }
        published = PUBLISHED.get(trace)
        others = [f"{each:.2f}" for each in published] if published else ["-"] * 6
        ours = [f"{means[density][1]:.2f} ({means[density][0]:.2f})" for density in (False, True)]
        table.add_row(trace, *others, *ours)
        result[trace] = {
            "at100": round(means[True][0], 2),
            "at130": round(means[True][1], 2),
            "published_best": max(published) if published else None,
        }
    Console().print(table)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
