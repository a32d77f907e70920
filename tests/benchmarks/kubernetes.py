"""What a Kubernetes cluster of 1,000 nodes costs to watch and to choose from.

`make bench NAME=kubernetes`. A real kube-apiserver, etcd and kube-scheduler on this machine, with
1,000 nodes of 8 GPUs that kwok pretends to be, and 2,000 pods that hold GPUs of them. The adapter
is a process of its own, and its view is received over NATS, as a scheduler receives it. Everything
shares this machine's processors.

The last line is one JSON object:

`discovery_1000_nodes_s`: from the adapter's ready bus to a first complete view; the best of three
    starts. `start_to_view_s` counts from the start of its process.
`change_p99_ms`: from the apiserver's answer to a pod's or a node's change to the changed node in
    the view; `sent_to_view_p99_ms` counts from the request.
`watch_rss_mb`: resident memory of the adapter at its end.
`selection_ms`: the median of 50 choices of a node by that view, each for a request of 1 to 8
    GPUs, with 200 holdings whose pods are not bound, which are counted anew each time; processor
    time. `selection_slowest_ms` is the slowest of them.
`pods_per_s_ours`, `pods_per_s_kube_scheduler`: pods of one GPU created and bound, chosen by us
    (node affinity, which kube-scheduler follows) and by kube-scheduler, in turns; the better of
    two.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import psutil
from rich.console import Console
from rich.table import Table

from schemas.base import pattern_for
from schemas.cluster.nodes import ClusterChanged, ClusterNode
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from services.scheduler.domain.clusters.choice import (
    Choice,
    Cluster,
    ClusterFleet,
)
from services.scheduler.domain.clusters.holdings import ClusterHolding
from shared.labels import RESERVATION_LABEL
from shared.testing import NatsServer, eventually, short_directory
from tests.support.bus import connected_bus
from tests.support.kubernetes import binaries
from tests.support.kubernetes.api import Api, Object, gather_some
from tests.support.kubernetes.cluster_view import CLUSTER, ReceivedView
from tests.support.kubernetes.control_plane import ControlPlane, control_plane_in
from tests.support.kubernetes.nodes import (
    GPU_RESOURCE,
    make_device_plugin_nodes,
    on_node,
    pod_object,
)
from tests.support.paths import ROOT

NODES: Final = 1_000
GPUS_PER_NODE: Final = 8
PODS: Final = 2_000
STARTS: Final = 3
CHANGES: Final = 300
CHOICES: Final = 50
IN_FLIGHT: Final = 200
BATCH: Final = 300  # pods of one round of one way to choose
ROUNDS: Final = 2
MEBIBYTE: Final = 1 << 20


@dataclass
class Figures:
    discovery_s: list[float] = field(default_factory=list)
    start_to_view_s: list[float] = field(default_factory=list)
    answered_to_view_ms: list[float] = field(default_factory=list)
    sent_to_view_ms: list[float] = field(default_factory=list)
    choice_ms: list[float] = field(default_factory=list)
    rss_mb: float = 0.0
    per_s: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "theirs": []})


@dataclass
class Adapter:
    """The process, and what it publishes."""

    process: asyncio.subprocess.Process
    view: ReceivedView
    started_at: float
    first_message_at: float = 0.0


def node_name(number: int) -> str:
    return f"node-{number:04}"


@asynccontextmanager
async def adapter(nats_url: str, kubeconfig: Path) -> AsyncIterator[Adapter]:
    environment = os.environ | {
        "GPUSTEWARD_NATS_URL": nats_url,
        "GPUSTEWARD_NODE_ID": CLUSTER,
        "GPUSTEWARD_KUBECONFIG": str(kubeconfig),
        "PYTHONPATH": str(ROOT),
    }
    async with connected_bus(nats_url, "receiver") as bus:
        view = ReceivedView()
        await bus.nats.subscribe(pattern_for(ClusterChanged), cb=view.receive)
        await bus.flush()
        argv = [sys.executable, "-m", "services.cluster"]
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *argv, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        found = Adapter(process, view, began)
        try:
            await eventually(lambda: view.revision > 0, within_seconds=60, every_seconds=0.002)
            found.first_message_at = time.monotonic()
            yield found
        finally:
            process.terminate()
            await process.wait()


async def populate(api: Api) -> None:
    rng = random.Random(1)
    free = dict.fromkeys(range(NODES), GPUS_PER_NODE)
    await make_device_plugin_nodes(api, [node_name(number) for number in free])

    def pods() -> Any:
        for number in range(PODS):
            gpus = rng.choice((1, 1, 2, 4))
            node = rng.choice([each for each in rng.sample(sorted(free), 20) if free[each] >= gpus])
            free[node] -= gpus
            yield pod_object(f"pod-{number}", gpus=gpus, node_name=node_name(node))

    await api.create_all(pods())


async def discover(nats_url: str, plane: ControlPlane, figures: Figures) -> None:
    for _ in range(STARTS):
        async with adapter(nats_url, plane.kubeconfig()) as found:
            await eventually(
                lambda: found.view.is_complete and len(found.view.nodes) == NODES,
                within_seconds=120,
                every_seconds=0.002,
            )
            now = time.monotonic()
            figures.discovery_s.append(now - found.first_message_at)
            figures.start_to_view_s.append(now - found.started_at)


async def change(api: Api, found: Adapter, figures: Figures) -> None:
    """Pods that are bound and go, nodes that are cordoned and uncordoned, one after another."""
    cordoned: set[str] = set()
    for number in range(CHANGES):
        name = node_name(number % NODES)
        sent = time.monotonic()
        if number % 3 == 0:
            cordoned ^= {name}
            is_cordoned = name in cordoned
            await api.merge(f"api/v1/nodes/{name}", {"spec": {"unschedulable": is_cordoned}})
            answered = time.monotonic()
            await seen(found, name, partial(cordons, is_cordoned))
        else:
            reservation_id = uuid4()
            labels = {RESERVATION_LABEL: str(reservation_id)}
            await api.create(pod_object(f"change-{number}", gpus=1, node_name=name, labels=labels))
            answered = time.monotonic()
            await seen(found, name, partial(holds, reservation_id))
        at = found.view.changed_at[name]
        figures.answered_to_view_ms.append(max(0.0, at - answered) * 1000)
        figures.sent_to_view_ms.append((at - sent) * 1000)


def cordons(is_cordoned: bool, node: ClusterNode) -> bool:
    return node.is_cordoned is is_cordoned


def holds(reservation_id: UUID, node: ClusterNode) -> bool:
    return any(reservation_id in gpus.by_reservation for gpus in node.gpus)


async def seen(found: Adapter, name: str, is_changed: Callable[[ClusterNode], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_changed(found.view.nodes[name]):
            found.view.news.clear()
            await found.view.news.wait()


def fleet_of(view: ReceivedView, holdings: list[ClusterHolding]) -> ClusterFleet:
    return ClusterFleet(
        [Cluster(cluster_id=CLUSTER, nodes=view.nodes)], holdings, datetime.now(UTC)
    )


def request(gpus: int) -> GpuRequest:
    return GpuRequest(gpus=gpus, cluster=ClusterRequest())


def choose(found: Adapter, figures: Figures) -> None:
    holdings = [
        ClusterHolding(
            reservation_id=uuid4(),
            cluster_id=CLUSTER,
            node_name=node_name(number),
            resource=GPU_RESOURCE,
            gpus=1,
            granted_at=datetime.now(UTC),
        )
        for number in range(IN_FLIGHT)
    ]
    for number in range(CHOICES):
        began = time.process_time()
        chosen = fleet_of(found.view, holdings).choose(request(1 + number % GPUS_PER_NODE))
        figures.choice_ms.append((time.process_time() - began) * 1000)
        assert isinstance(chosen, Choice)


async def bind(api: Api, found: Adapter, figures: Figures, which: str, round_: int) -> None:
    """A batch of pods created, until our view has all of them bound."""
    before = sum(found.view.requested().values())
    fleet = fleet_of(found.view, [])
    began = time.monotonic()

    async def create(number: int) -> Object:
        pod = pod_object(f"{which}-{round_}-{number}", gpus=1)
        if which == "ours":
            chosen = fleet.choose(request(1))
            assert isinstance(chosen, Choice)
            assert chosen.placement.hostname is not None
            fleet.take(uuid4(), request(1), chosen.placement)
            pod = on_node(pod, chosen.placement.hostname)
        return await api.create(pod)

    await gather_some(create(number) for number in range(BATCH))
    await eventually(
        lambda: sum(found.view.requested().values()) == before + BATCH,
        within_seconds=300,
        every_seconds=0.02,
        what=f"{BATCH} bound pods",
    )
    figures.per_s[which].append(BATCH / (time.monotonic() - began))


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def measure() -> Figures:
    figures = Figures()
    with short_directory() as directory:
        server = NatsServer(directory / "nats")
        await server.start()
        try:
            async with control_plane_in(directory / "plane") as plane, plane.api() as api:
                await populate(api)
                await discover(server.authenticated_url, plane, figures)
                async with adapter(server.authenticated_url, plane.kubeconfig()) as found:
                    await found.view.until_complete(within_seconds=120)
                    await change(api, found, figures)
                    choose(found, figures)
                    for round_ in range(ROUNDS):
                        for which in figures.per_s:
                            await bind(api, found, figures, which, round_)
                    rss = psutil.Process(found.process.pid).memory_info().rss
                    figures.rss_mb = rss / MEBIBYTE
        finally:
            await server.stop()
    return figures


def main() -> None:
    if (reason := binaries.missing()) is not None:
        sys.exit(reason)
    figures = asyncio.run(measure())
    found = {
        "discovery_1000_nodes_s": round(min(figures.discovery_s), 2),
        "start_to_view_s": round(min(figures.start_to_view_s), 2),
        "change_p99_ms": round(percentile(figures.answered_to_view_ms, 0.99), 1),
        "change_median_ms": round(percentile(figures.answered_to_view_ms, 0.5), 1),
        "sent_to_view_p99_ms": round(percentile(figures.sent_to_view_ms, 0.99), 1),
        "selection_ms": round(percentile(figures.choice_ms, 0.5), 2),
        "selection_slowest_ms": round(max(figures.choice_ms), 2),
        "watch_rss_mb": round(figures.rss_mb, 1),
        "pods_per_s_ours": round(max(figures.per_s["ours"]), 1),
        "pods_per_s_kube_scheduler": round(max(figures.per_s["theirs"]), 1),
    }
    table = Table("figure", "value", title=f"{NODES} nodes of {GPUS_PER_NODE} GPUs, {PODS} pods")
    for name, value in found.items():
        table.add_row(name, str(value))
    Console().print(table)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
