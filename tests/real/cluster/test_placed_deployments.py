"""From a request to a bound pod: a real cluster's service, the scheduler, and what the executor
makes, on nodes that pods of others have booked.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.cluster.node_selection import (
    GetNodeSummaries,
    NodeGpuSummary,
    NodeSelection,
    NodeSummaries,
    SelectNode,
)
from schemas.cluster.nodes import GpuSupply
from schemas.executor.attempts import FailureKind, Runtime
from schemas.scheduler.reservations import ReservationGranted
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.deployment import EngineDeployment
from services.executor.runtimes.runtime import EngineRuntime
from services.executor.settings import ExecutorSettings
from shared.labels import RESERVATION_LABEL
from shared.testing import eventually
from tests.support.kubernetes.api import Api, Object, path_to
from tests.support.kubernetes.cluster_view import CLUSTER, ReceivedView, watched_cluster
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.counts import (
    counted_by_claims,
    counted_by_plugin,
    names,
    until_bound,
)
from tests.support.kubernetes.nodes import (
    claim_template,
    make_device_plugin_nodes,
    make_dra_nodes,
    node_object,
    on_node,
    pod_object,
)
from tests.support.worlds.cluster_executor import (
    ClusterRuntimes,
    cluster_settings,
    cluster_start,
    runtimes_of_clusters,
)
from tests.support.worlds.runtime_launches import launch_of
from tests.support.worlds.scheduler import FakeGpu, World, accepted, scheduler
from tests.support.worlds.scheduler import world as make_world
from tests.support.worlds.scheduler_cluster import of_cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

CLUSTER_LABEL = "gpusteward.io/cluster"
CORDON = {"spec": {"unschedulable": True}}
# Of 200 nodes: all of their GPUs booked, half of them, cordoned, free and yet in use.
FULL, HALF, CORDONED, BUSY = range(170), range(170, 195), range(195, 196), range(196, 200)


@dataclass(slots=True)
class Deployed:
    """All that takes part, beside the control plane."""

    api: Api
    view: ReceivedView
    around: World
    runtime: EngineRuntime
    settings: ExecutorSettings

    async def granted(self, gpus: int, **more: Any) -> ReservationGranted:
        request = of_cluster(gpus, CLUSTER, lease_ttl_seconds=600.0, **more)
        return await self.around.granted(await self.around.request(request))

    async def start(self, granted: ReservationGranted) -> EngineDeployment:
        command = cluster_start(
            reservation_id=granted.reservation_id, epoch=granted.epoch, place=granted.cluster
        )
        engine = await self.runtime.start(launch_of(command, self.settings))
        assert isinstance(engine, EngineDeployment)
        return engine

    async def nodes(self) -> dict[str, str | None]:
        """Where the pod of every reservation is bound."""
        pods: list[Object] = await self.api.items(
            path_to("v1", "Pod"), labelSelector=RESERVATION_LABEL
        )
        return {
            pod["metadata"]["labels"][RESERVATION_LABEL]: pod["spec"].get("nodeName")
            for pod in pods
        }


@pytest.fixture
async def deployed(
    empty_cluster: ControlPlane, nats_url: str, postgres_dsn: str, tmp_path: Path
) -> AsyncIterator[Deployed]:
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        api = await start(empty_cluster.api())
        around = await start(make_world(nats_url))
        await start(scheduler(nats_url, postgres_dsn))
        view = await start(watched_cluster(nats_url, empty_cluster.kubeconfig()))
        runtimes: ClusterRuntimes = await start(runtimes_of_clusters())
        settings = cluster_settings(empty_cluster, tmp_path)
        runtime = runtimes.make(Runtime.KUBERNETES, settings)
        yield Deployed(api, view, around, runtime, settings)


@pytest.mark.parametrize("supply", GpuSupply)
async def test_fifty_deployments_reach_their_chosen_nodes(
    deployed: Deployed, supply: GpuSupply
) -> None:
    api, around, by_plugin = deployed.api, deployed.around, supply is GpuSupply.DEVICE_PLUGIN
    node = names(200)
    await (make_device_plugin_nodes if by_plugin else make_dra_nodes)(api, node)
    for number in CORDONED:
        await api.merge(path_to("v1", "Node", None, node[number]), CORDON)
    if not by_plugin:
        await api.create_all(claim_template(f"gpus-{gpus}", gpus=gpus) for gpus in (4, 8))
    booked = {**dict.fromkeys(FULL, 8), **dict.fromkeys(HALF, 4)}
    await api.create_all(
        on_node(
            pod_object(f"foreign-{number}", gpus=gpus)
            if by_plugin
            else pod_object(f"foreign-{number}", claim_template_name=f"gpus-{gpus}"),
            node[number],
        )
        for number, gpus in booked.items()
    )
    for number in BUSY:
        gpus = [FakeGpu(f"GPU-{number}-{i}", i, utilization_percent=90.0) for i in range(8)]
        labels = {CLUSTER_LABEL: CLUSTER}
        await around.add_node(node[number], gpus, labels=labels, executor=False)
        await around.known(node[number], 8)
    await until_bound(api, len(booked))
    count = counted_by_plugin if by_plugin else counted_by_claims

    async def is_seen() -> bool:
        seen = await around.bus.query(GetNodeSummaries(), NodeSummaries)
        left = {name: 8 - each.allocatable_gpus for name, each in seen.nodes.items()}
        return left == {**await count(api), node[CORDONED[0]]: 8}

    await eventually(is_seen, within_seconds=60, every_seconds=0.5, what="what is booked")

    # Every half that is free has room for the small ones, and only nodes in use for the large ones.
    granted = await asyncio.gather(
        *(deployed.granted(8 if number % 12 == 0 else 1 + number % 2) for number in range(1, 51))
    )
    await asyncio.gather(*(deployed.start(each) for each in granted))
    await until_bound(api, len(booked) + len(granted))
    bound, held = await deployed.nodes(), await count(api)
    await eventually(is_seen, within_seconds=60, every_seconds=0.5, what="the deployments")

    placed = {str(each.reservation_id): each.cluster for each in granted}
    chosen = {key: place for key, place in placed.items() if place and place.node_name}
    left = {key: place for key, place in placed.items() if place and not place.node_name}
    assert {key: bound[key] for key in chosen} == {
        key: place.node_name for key, place in chosen.items()
    }
    assert {place.node_name for place in chosen.values()} <= {node[number] for number in HALF}
    assert Counter(place.gpus for place in left.values()) == {8: 4}
    assert {bound[key] for key in left} == {node[number] for number in BUSY}
    assert all("no node has 8 idle GPUs" in place.message for place in left.values())
    assert max(held.values()) == 8
    assert sum(held.values()) == sum(booked.values()) + sum(p.gpus for p in placed.values() if p)
    assert held[node[CORDONED[0]]] == 0
    for key, name in bound.items():
        [offered] = deployed.view.nodes[str(name)].gpus
        assert key in map(str, offered.by_reservation)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["cordoned", "deleted"])
async def test_lost_node_before_binding_moves_next_pod(
    deployed: Deployed, is_deleted: bool
) -> None:
    api = deployed.api
    await make_device_plugin_nodes(api, ["node-0", "node-1"])
    await eventually(lambda: len(deployed.view.nodes) == 2 and deployed.view.is_complete)
    granted = await deployed.granted(8)
    assert granted.cluster is not None
    lost = str(granted.cluster.node_name)
    path = path_to("v1", "Node", None, lost)
    await (api.delete(path) if is_deleted else api.merge(path, CORDON))

    engine = await deployed.start(granted)
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(5.0)
    await engine.stop(0.0)
    accepted(await deployed.around.release(granted))
    again = await deployed.granted(8, avoided_node_names=(lost,))
    await deployed.start(again)
    await until_bound(api, 1)

    assert failed.value.failure.kind is FailureKind.UNSCHEDULABLE
    assert again.cluster is not None
    assert again.cluster.node_name not in (None, lost)
    assert await deployed.nodes() == {str(again.reservation_id): again.cluster.node_name}


RECORDED = (
    Path(os.environ.get("GPUSTEWARD_TEST_DATA", "nowhere")) / "cases/h01-node-timesliced.json"
)
SLICES = {"resource": "nvidia.com/gpu", "units": 1}


def recorded_node() -> Object:
    """Return the node from the field, a T4 of twelve shares, with what its record leaves out."""
    node: Object = json.loads(RECORDED.read_text())
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts |= {"cpu": "32", "memory": "128Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", **node}


@pytest.mark.skipif(
    not RECORDED.exists(), reason="needs a node from the field: set GPUSTEWARD_TEST_DATA"
)
async def test_whole_gpus_never_come_from_shared_board(deployed: Deployed) -> None:
    """Neither our choice nor kube-scheduler's binds them to a unit that is no GPU."""
    api, around, view = deployed.api, deployed.around, deployed.view
    registered = {"hami.io/node-nvidia-register": "GPU-1,10,15360,100,Tesla T4,0,true:"}
    hami = node_object("hami", gpus=10)
    for key in [each for each in hami["metadata"]["labels"] if each.startswith("nvidia.com/")]:
        del hami["metadata"]["labels"][key]
    hami["metadata"]["annotations"] = registered
    await api.create_all([recorded_node(), hami])
    await eventually(lambda: len(view.nodes) == 2 and view.is_complete)

    # By an agent that reads the one board, too.
    labels = {CLUSTER_LABEL: CLUSTER}
    busy = [FakeGpu("GPU-t4", 0, name="Tesla T4", utilization_percent=100.0)]
    await around.add_node("t4-node", busy, labels=labels, executor=False)
    await around.known("t4-node", 1)
    whole = await deployed.granted(1)
    engine = await deployed.start(whole)
    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(5.0)

    share = await deployed.granted(1, **SLICES)
    await deployed.start(share)
    await until_bound(api, 1)
    selected = await around.bus.query(SelectNode(required_gpus=1), NodeSelection)

    async def summaries() -> dict[str, NodeGpuSummary]:
        return (await around.bus.query(GetNodeSummaries(), NodeSummaries)).nodes

    async def is_counted() -> bool:
        return (await summaries())["t4-node"].free_shares == 11

    await eventually(is_counted, within_seconds=30, what="the share")
    found = await summaries()
    await make_device_plugin_nodes(api, ["whole"])
    await until_bound(api, 2)

    assert whole.cluster is not None
    assert share.cluster is not None
    assert (whole.cluster.node_name, whole.cluster.avoided_hostnames) == (None, ("hami",))
    sign = "t4-node: nvidia.com/gpu.sharing-strategy=time-slicing: a unit of nvidia.com/gpu is one"
    assert sign in whole.cluster.message
    assert "hami: annotation hami.io/node-nvidia-register" in whole.cluster.message
    assert failed.value.failure.kind is FailureKind.UNSCHEDULABLE
    assert share.cluster.node_name == "t4-node"
    assert (selected.node_id, sign in selected.message) == (None, True)
    assert {
        name: (each.total_gpus, each.idle_gpu_count, each.total_shares, each.has_metrics)
        for name, each in found.items()
    } == {"t4-node": (1, 0, 12, True), "hami": (1, 0, 0, False)}
    assert await deployed.nodes() == {
        str(whole.reservation_id): "whole",
        str(share.reservation_id): "t4-node",
    }
