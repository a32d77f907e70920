"""The view of a real cluster, against an independent count of what its API lists."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from schemas.cluster.nodes import ClusterView, GetCluster, GpuSupply, ReadingsSource
from shared.kubernetes import watching
from shared.kubernetes.requirements import (
    WATCHER_DRA_RIGHTS,
    WATCHER_PROXY_RIGHTS,
    WATCHER_RIGHTS,
)
from shared.labels import INSTALLATION_LABEL, RESERVATION_LABEL
from shared.testing import eventually
from tests.support.bus import connected_bus
from tests.support.http_server import serving
from tests.support.kubernetes.api import Api, Object
from tests.support.kubernetes.chart import install, rendered, token_of
from tests.support.kubernetes.cluster_view import CLUSTER, ReceivedView, watched_cluster, whole_view
from tests.support.kubernetes.command_line import devices
from tests.support.kubernetes.control_plane import ControlPlane, rule_of
from tests.support.kubernetes.counts import (
    counted_by_claims,
    counted_by_plugin,
    names,
    until_bound,
)
from tests.support.kubernetes.nodes import (
    POD_ADDRESS_LABEL,
    claim_template,
    make_device_plugin_nodes,
    make_dra_nodes,
    node_object,
    pod_object,
    resource_slices,
)

NODES = 200
READ = {"apiGroups": ["", "resource.k8s.io"], "verbs": ["list", "watch"]}
DRA = ["resourceslices", "resourceclaims", "deviceclasses"]


async def equal(view: ReceivedView, api: Api, count: Callable[[Api], Awaitable[Any]]) -> None:
    async def is_equal() -> bool:
        return view.is_complete and view.requested() == await count(api)

    await eventually(is_equal, within_seconds=30, every_seconds=0.2, what="the same count")


async def test_room_beside_gpus_is_counted_as_pods_request(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    cores, memory = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
    mine = uuid4()

    def asking(name: str, *, labels: dict[str, str] | None = None, **amounts: str) -> Object:
        pod = pod_object(name, node_name="vgpu", labels=labels)
        limits = {each.replace("__", "/").replace("_", "-"): text for each, text in amounts.items()}
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
        return pod

    async with empty_cluster.api() as api:
        node = node_object(
            "vgpu", resource=None, resources={cores: 200, memory: 120}, labels={"zone": "east"}
        )
        await api.create(node)
        part = asking("part", labels={RESERVATION_LABEL: str(mine)}, cpu="4", memory="8Gi")
        part["spec"]["containers"][0]["resources"]["limits"] |= {cores: "30", memory: "16"}
        await api.create_all([part, asking("plain", cpu="1500m", memory="100M")])
        async with watched_cluster(nats_url, empty_cluster.kubeconfig()) as view:

            async def is_seen() -> bool:
                seen = view.nodes.get("vgpu")
                return seen is not None and seen.requested_host.pods == 2

            await eventually(is_seen, within_seconds=30, what="both pods")
            seen = view.nodes["vgpu"]

    (gpus,) = seen.gpus
    assert (gpus.allocatable, gpus.allocatable_units, gpus.requested_units) == (2, 200, 30)
    assert (gpus.allocatable_memory_units, gpus.requested_memory_units) == (120, 16)
    assert gpus.units_by_reservation == {mine: 30}
    assert (seen.requested_host.cpu_milli, seen.requested_host.memory_mb) == (5_500, 8_192 + 96)
    assert seen.allocatable_host is not None
    assert (seen.allocatable_host.cpu_milli, seen.labels["zone"]) == (192_000, "east")


@pytest.mark.long
async def test_200_nodes_are_seen_as_they_are_counted(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    reservation = uuid4()
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, names(NODES))
        await api.create_all(pod_object(f"pod-{i}", gpus=1 + i % 5) for i in range(150))
        await until_bound(api, 150)

        async with watched_cluster(nats_url, empty_cluster.kubeconfig()) as view:
            await equal(view, api, counted_by_plugin)
            ours = pod_object("ours", gpus=3, labels={RESERVATION_LABEL: str(reservation)})
            await api.create(ours | {"spec": ours["spec"] | {"nodeName": "node-007"}})
            await asyncio.gather(
                *(api.delete(f"api/v1/namespaces/default/pods/pod-{i}") for i in range(20))
            )
            await api.merge("api/v1/nodes/node-001", {"spec": {"unschedulable": True}})
            await api.delete("api/v1/nodes/node-002")
            await api.create(node_object("node-without", resource=None))
            await equal(view, api, counted_by_plugin)

            assert len(view.nodes) == NODES - 1
            assert view.nodes["node-001"].is_cordoned
            assert view.nodes["node-007"].gpus[0].by_reservation == {reservation: 3}
            assert view.nodes["node-007"].gpu_memory_mb == 81_559
            # kwok makes nodes ready when it comes to them.
            await eventually(lambda: all(each.is_ready for each in view.nodes.values()))
            assert view.is_gapless
            async with connected_bus(nats_url, "asker") as bus:

                async def is_told() -> bool:
                    return await whole_view(bus) == view.nodes

                # kwok's heartbeats go on, and reach one before the other.
                await eventually(is_told, what="the same nodes told")


@pytest.mark.long
async def test_200_dra_nodes_are_counted_as_claims(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    async with empty_cluster.api() as api:
        await make_dra_nodes(api, names(NODES))
        for gpus in (1, 2, 3):
            await api.create(claim_template(f"gpus-{gpus}", gpus=gpus))
        await api.create_all(
            pod_object(f"pod-{i}", claim_template_name=f"gpus-{1 + i % 3}") for i in range(60)
        )
        await until_bound(api, 60)

        async with watched_cluster(nats_url, empty_cluster.kubeconfig()) as view:
            await equal(view, api, counted_by_claims)
            assert sum(view.requested().values()) == 120
            assert {gpus.supply for each in view.nodes.values() for gpus in each.gpus} == {
                GpuSupply.DRA
            }

            # A driver that publishes anew: no pool counts half.
            first, second = resource_slices("node-000", slice_count=2, generation=2)
            await api.delete("apis/resource.k8s.io/v1/resourceslices/node-000-gpu.nvidia.com-0")
            await api.create(first)
            await eventually(
                lambda: "node-000" not in view.nodes and "1 of 2 slices" in view.detail
            )
            await api.create(second)
            await asyncio.gather(
                *(api.delete(f"api/v1/namespaces/default/pods/pod-{i}") for i in range(10))
            )
            await equal(view, api, counted_by_claims)

            assert view.nodes["node-000"].gpu_model == "NVIDIA H100 80GB HBM3"
            assert view.detail == ""


async def test_custom_devices_count_once_imported(
    empty_cluster: ControlPlane, nats_url: str, tmp_path: Path
) -> None:
    npu = "vendor.example/npu"
    definition = {"key": npu, "group": "npus", "custom_name": "vendor", "default_value": 1}
    (tmp_path / "npu.json").write_text(
        json.dumps(definition | {"description_en": "an NPU", "description_zh": "神经网络处理器"})
    )
    kubeconfig = empty_cluster.kubeconfig()
    path = "api/v1/namespaces/kube-public/configmaps/cf-crl-vendor-npu"

    async with empty_cluster.api() as api, watched_cluster(nats_url, kubeconfig) as view:
        await api.create(node_object("node-a", resource=npu))
        await api.create(pod_object("holder", node_name="node-a", gpus=3, resource=npu))
        await view.until_complete()
        assert view.nodes == {}
        try:
            await devices(empty_cluster, "import", str(tmp_path / "npu.json"))
            await eventually(lambda: "node-a" in view.nodes, within_seconds=20)

            (gpus,) = view.nodes["node-a"].gpus
            assert (gpus.resource, gpus.allocatable, gpus.requested) == (npu, 8, 3)
            listed = await devices(empty_cluster, "list")
            assert "神经网络处理器" in listed

            broken = {"data": {"limits": "sometimes"}}
            await api.merge(path, broken)
            await eventually(
                lambda: not view.nodes and "cf-crl-vendor-npu: expected one of" in view.detail,
                within_seconds=20,
            )
        finally:
            await api.delete(path)


async def test_a_restarted_apiserver_is_watched_on(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, names(3))
        async with watched_cluster(nats_url, empty_cluster.kubeconfig()) as view:
            await equal(view, api, counted_by_plugin)

            await empty_cluster.restart_apiserver()
            await api.create(pod_object("after", gpus=2, node_name="node-001"))
            await api.delete("api/v1/nodes/node-002")

            await equal(view, api, counted_by_plugin)
            assert view.requested() == {"node-000": 0, "node-001": 2}
            assert any("does not answer" in each for each in view.details)


async def test_hanging_apiserver_makes_view_incomplete(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, names(1))
        async with watched_cluster(
            nats_url, empty_cluster.kubeconfig(), heartbeat_seconds=0.5
        ) as view:
            await equal(view, api, counted_by_plugin)

            empty_cluster.pause("kube-apiserver")
            try:
                await eventually(lambda: not view.is_complete, within_seconds=10)
            finally:
                empty_cluster.resume("kube-apiserver")
            assert "api:" in view.detail

            await equal(view, api, counted_by_plugin)


async def test_forbidden_kind_makes_view_incomplete(
    empty_cluster: ControlPlane, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REFUSED_RETRY_SECONDS", 0.2)
    await empty_cluster.allow("watcher", [READ | {"resources": ["nodes", *DRA]}])
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, names(1))
        await api.create(pod_object("unseen", gpus=2, node_name="node-000"))
        async with watched_cluster(nats_url, empty_cluster.kubeconfig("watcher")) as view:
            await eventually(lambda: view.detail.startswith("pods: Forbidden"), within_seconds=20)
            assert not view.is_complete

            await empty_cluster.allow("watcher", [READ | {"resources": ["pods"]}])

            await equal(view, api, counted_by_plugin)
            assert view.requested() == {"node-000": 2}


async def test_manifest_account_may_read_all_for_a_view(
    empty_cluster: ControlPlane, nats_url: str, tmp_path: Path
) -> None:
    async with empty_cluster.api() as api:
        await install(api, *(each["kind"] for each in rendered() if "spec" not in each))
        await make_device_plugin_nodes(api, names(2))
        token = await token_of(empty_cluster, "gpusteward-cluster", "cluster")
        config = json.loads(empty_cluster.kubeconfig().read_text())
        config["users"][0]["user"] = {"token": token}
        (tmp_path / "kubeconfig").write_text(json.dumps(config))

        async with watched_cluster(nats_url, tmp_path / "kubeconfig") as view:
            await equal(view, api, counted_by_plugin)


async def test_readings_come_from_exporter_or_own_pods(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    smi = empty_cluster.pod_programs / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, GPU-x, 77, 1000, 81559, 50'\n")
    smi.chmod(0o755)
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, names(3))
        address = empty_cluster.networks.pod_address(1)
        labels = {"app": "nvidia-dcgm-exporter", POD_ADDRESS_LABEL: address}
        await api.create(pod_object("exporter", node_name="node-000", labels=labels))
        for name, owner in (("ours", "us"), ("theirs", "them")):
            number = 1 if owner == "us" else 2
            labels = {INSTALLATION_LABEL: owner}
            await api.create(pod_object(name, gpus=1, node_name=f"node-{number:03}", labels=labels))
        async with (
            page_at(address, 9400, 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 42\n'),
            watched_cluster(
                nats_url,
                empty_cluster.kubeconfig(),
                installation_id="us",
                exporter_route="pod",
                readings_seconds=0.2,
            ) as view,
        ):

            async def both() -> bool:
                sources = {name: each.readings_source for name, each in view.nodes.items()}
                return sources == {
                    "node-000": ReadingsSource.DCGM,
                    "node-001": ReadingsSource.NVIDIA_SMI,
                    "node-002": None,
                }

            await eventually(both, within_seconds=20, what="readings of two nodes")
            assert view.nodes["node-000"].readings[0].utilization_percent == 42
            assert view.nodes["node-001"].readings[0].utilization_percent == 77
            assert view.nodes["node-001"].readings_at is not None

            await api.delete("api/v1/namespaces/default/pods/exporter", gracePeriodSeconds=0)
            await eventually(lambda: not view.nodes["node-000"].readings, within_seconds=20)


async def test_exporter_is_read_through_apiserver(
    empty_cluster: ControlPlane, nats_url: str
) -> None:
    """The exporter is a stand-in outside of the cluster: the apiserver connects to no loopback
    address, and pods of kwok have others only in name.
    """
    address = own_address()
    rights = (*WATCHER_RIGHTS, *WATCHER_DRA_RIGHTS)
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 42\n'
    async with empty_cluster.api() as api, page_at(address, 0, page) as port:
        await empty_cluster.allow("watcher", [rule_of(each) for each in rights])
        await make_device_plugin_nodes(api, names(1))
        labels = {"app": "nvidia-dcgm-exporter", POD_ADDRESS_LABEL: address}
        exporter = pod_object("exporter", node_name="node-000", labels=labels)
        ports = [{"name": "metrics", "containerPort": port}]
        exporter["spec"]["containers"][0]["ports"] = ports
        await api.create(exporter)
        async with watched_cluster(
            nats_url, empty_cluster.kubeconfig("watcher"), readings_seconds=0.2
        ) as view:
            await equal(view, api, counted_by_plugin)
            assert not view.nodes["node-000"].readings

            await empty_cluster.allow("watcher", [rule_of(each) for each in WATCHER_PROXY_RIGHTS])
            await eventually(lambda: bool(view.nodes["node-000"].readings), within_seconds=20)

        assert view.nodes["node-000"].readings_source is ReadingsSource.DCGM
        assert view.nodes["node-000"].readings[0].utilization_percent == 42


def own_address() -> str:
    """One of this machine that is no loopback address; skips without."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback ones")
        return str(probe.getsockname()[0])


async def test_cluster_without_dra_is_complete(nats_url: str, tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.25.0"})
        if request.path.startswith("/apis/resource.k8s.io"):
            status = {"code": 404, "reason": "NotFound", "message": "no such resource"}
            return web.json_response(status, status=404)
        if "watch" in request.query:
            await ended.wait()
        items = [node_object("node-0")] if request.path == "/api/v1/nodes" else []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async with served_by(answer) as port:
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        async with watched_cluster(nats_url, tmp_path / "kubeconfig") as view:
            await view.until_complete()
            await eventually(lambda: view.requested() == {"node-0": 0})
            before = view.revision
            async with connected_bus(nats_url, "asker") as bus:
                answered = await bus.query(GetCluster(cluster_id=CLUSTER), ClusterView)
            assert answered.kubernetes_version == "v1.25.0"
            assert answered.revision >= before
            # It may have been published, and received, before or after the answer.
            await eventually(lambda: view.revision >= answered.revision, what="that revision")
        ended.set()


async def test_unreachable_cluster_is_reported_missing(nats_url: str, tmp_path: Path) -> None:
    async with watched_cluster(nats_url, tmp_path / "none") as view:
        await eventually(lambda: "no kubeconfig at" in view.detail)
        assert not view.is_complete


@asynccontextmanager
async def page_at(host: str, port: int, text: str) -> AsyncIterator[int]:
    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    async with served_by(page, host, port) as chosen:
        yield chosen


@asynccontextmanager
async def served_by(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[int]:
    """The port on which it answers everything."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app, host, port) as address:
        yield int(address.rpartition(":")[2])
