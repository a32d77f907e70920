"""Engines in pods speak TLS alone, with a certificate that is theirs and is trusted alone."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.errors import ErrorCode
from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.plan import workload_name
from shared.benchmarks.chat_server import ChatServer
from shared.errors import RefusedError
from shared.testing import eventually
from shared.tls.authority import make_own_pair
from shared.tls.contexts import make_server_context
from tests.support.http_server import serving
from tests.support.kubernetes.api import Api, ApiError, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import LABEL, PodEngines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.packet_capture import capture
from tests.support.worlds.cluster_executor import (
    ClusterRuntimes,
    cluster_settings,
    cluster_start,
)
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

pytestmark = pytest.mark.long
READY_SECONDS = 60.0


def place(**rest: Any) -> ClusterPlacement:
    return ClusterPlacement(cluster_id=NODE, gpus=1, node_name="node-1", hostname="node-1", **rest)


async def is_gone(api: Api, path: str) -> bool:
    try:
        await api.get(path)
    except ApiError as error:
        return error.code == 404
    return False


async def running_pod(api: Api) -> Object:
    while True:
        for pod in await api.items(path_to("v1", "Pod", "default"), labelSelector=LABEL):
            if pod.get("status", {}).get("podIP"):
                return pod
        await asyncio.sleep(0.1)


def write_together(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def texts_below(directory: Path) -> str:
    files = [each for each in directory.rglob("*") if each.is_file()]
    return "".join(each.read_bytes().decode(errors="replace") for each in files)


async def test_engine_speaks_tls_alone_until_its_secret_goes(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=place())
    launch = launch_of(command, settings)
    name = workload_name(command)
    path = path_to("v1", "Secret", "default", name)

    with capture("lo") as seen:
        engine = await runtime.start(launch)
        url = await engine.until_ready(READY_SECONDS)
        async with ChatServer(
            base_url=url, model_name="m", certificate=launch.certificate
        ) as server:
            assert await server.only_model() == "m"
        secret = await api.get(path)
        [pod] = await api.items(path_to("v1", "Pod", "default"), labelSelector=LABEL)
        async with ChatServer(base_url=url, model_name="m") as stranger:
            assert not await stranger.answers()
        await engine.stop(1.0)

    address, port = pod["status"]["podIP"], pod["spec"]["containers"][0]["ports"][0]
    assert url == f"https://{address}:{port['containerPort']}"
    assert port["containerPort"] in seen.ports
    assert not [each for each in seen.plain if address in (each[0], each[2])]
    assert sorted(secret["data"]) == ["tls.crt", "tls.key"]
    assert pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert "PRIVATE KEY" not in json.dumps(pod) + launch.log.tail(100)
    assert "PRIVATE KEY" not in texts_below(tmp_path)
    await eventually(lambda: is_gone(api, path), what="the Secret gone")


async def test_another_certificate_at_the_port_is_never_ready(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    """Nothing runs in the pod, and somebody else answers at its address, with the right name."""
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    await make_device_plugin_nodes(api, ["node-1"])
    command = cluster_start(place=place())

    engine = await runtime.start(launch_of(command, settings))
    host = f"{workload_name(command)}.default.svc"
    key, certificate = make_own_pair("other", [host, "localhost"], timedelta(hours=1))
    other = write_together(tmp_path / "other.pem", key, certificate)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    pod = await running_pod(api)
    port = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
    context = make_server_context(other)
    async with serving(app, pod["status"]["podIP"], port, context):
        with pytest.raises(AttemptFailed, match="to answer /health"):
            await engine.until_ready(6.0)
    await engine.stop(1.0)

    assert asked == []


async def test_what_cannot_be_encrypted_is_refused_by_default(
    empty_cluster: ControlPlane, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    two = place(other_nodes=(ClusterNodeName(node_name="node-2", hostname="node-2"),))

    for command in (cluster_start(engine="lmdeploy"), cluster_start(place=two)):
        with pytest.raises(RefusedError, match="network-encrypted") as refused:
            runtime.check(command)
        assert refused.value.code is ErrorCode.UNSUPPORTED
    assert "serves no HTTPS" in (await runtime.offer()).missing["lmdeploy"]
