"""What an engine of a cluster waits for, and how that is learnt: told by the cluster's watches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schemas.executor.attempts import FailureKind, Runtime
from schemas.gpus.device_grant import ClusterPlacement
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.runtime import RunningEngine
from shared.kubernetes.client import KubernetesClient
from shared.testing import eventually
from shared.waiting import within
from tests.support.kubernetes.api import Api, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines, pod_engines
from tests.support.kubernetes.kueue import GATE, QUOTA, admit, hold, kueue_kind
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.kubernetes.webhooks import gating_webhook, refusing_webhook
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

pytestmark = pytest.mark.long

READY_SECONDS = 60.0
ONE_GPU = ClusterPlacement(cluster_id=NODE, gpus=1)


@pytest.fixture
async def engines(empty_cluster: ControlPlane, api: Api) -> AsyncIterator[PodEngines]:
    async with pod_engines(empty_cluster) as running:
        yield running


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of the API that are no watches, as METHOD PATH."""
    found: list[str] = []
    call = KubernetesClient.call

    async def recorded(client: KubernetesClient, method: Any, path: str, **rest: Any) -> bytes:
        found.append(f"{method} {path}")
        return await call(client, method, path, **rest)

    monkeypatch.setattr(KubernetesClient, "call", recorded)
    return found


async def pod_of(api: Api) -> Object:
    found: list[Object] = []

    async def is_there() -> bool:
        path = path_to("v1", "Pod", "default")
        found[:] = await api.items(path, labelSelector="gpusteward.reservation")
        return bool(found)

    await eventually(is_there, within_seconds=30, what="its pod")
    return found[0]


async def until_said(said: list[str], text: str, ready: asyncio.Task[str]) -> None:
    def is_said() -> bool:
        if ready.done():
            ready.result()
        return any(text in message for message in said)

    try:
        await eventually(is_said, within_seconds=READY_SECONDS, what=text)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said}") from error


async def test_engine_start_is_reported_with_one_list_each(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
    asked: list[str],
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=ONE_GPU)
    said: list[str] = []

    engine = await runtime.start(launch_of(command, settings, report=said.append))
    asked.clear()
    ready = asyncio.create_task(engine.until_ready(READY_SECONDS))
    await until_said(said, "cannot be scheduled", ready)
    await make_device_plugin_nodes(api, ["node-0"])
    await ready
    ended = asyncio.create_task(engine.until_ended())
    engines.kill(command.reservation_id)
    failure = await ended
    listed = [each for each in asked if not each.endswith("/log")]
    await engine.stop(0.0)

    assert failure.kind is FailureKind.ENGINE_EXITED
    assert sorted(listed) == [
        "GET /api/v1/namespaces/default/pods",
        "GET /apis/apps/v1/namespaces/default/deployments",
    ]


async def test_engine_end_is_seen_after_api_restart(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    await make_device_plugin_nodes(api, ["node-0"])
    settings = cluster_settings(empty_cluster, tmp_path)
    command = cluster_start(place=ONE_GPU)
    engine = await runtimes.make(Runtime.KUBERNETES, settings).start(launch_of(command, settings))
    await engine.until_ready(READY_SECONDS)

    ended = asyncio.create_task(engine.until_ended())
    await empty_cluster.restart_apiserver()
    engines.kill(command.reservation_id)
    async with within(READY_SECONDS):
        failure = await ended
    await engine.stop(0.0)

    assert failure.kind is FailureKind.ENGINE_EXITED


async def test_kueue_message_is_reported_until_admission(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
    asked: list[str],
) -> None:
    await make_device_plugin_nodes(api, ["node-0"])
    settings = cluster_settings(empty_cluster, tmp_path)
    said: list[str] = []
    async with kueue_kind(api), gating_webhook(empty_cluster, GATE):
        launch = launch_of(cluster_start(place=ONE_GPU), settings, report=said.append)
        engine = await runtimes.make(Runtime.KUBERNETES, settings).start(launch)
        ready = asyncio.create_task(engine.until_ready(READY_SECONDS))
        await until_said(said, f"is held back by {GATE}", ready)
        pod = await pod_of(api)
        await hold(api, pod)
        await until_said(said, f"is held back by {GATE}: {QUOTA}", ready)
        await admit(api, pod)
        await ready
        await engine.stop(0.0)

    assert said[-1].endswith("is ready")
    listed = [each for each in asked if each.endswith("/workloads")]
    assert len(listed) == 1


async def refused(engine: RunningEngine, said: list[str], text: str) -> AttemptFailed:
    ready = asyncio.create_task(engine.until_ready(5.0))
    await until_said(said, text, ready)
    with pytest.raises(AttemptFailed) as failed:
        await ready
    await engine.stop(0.0)
    return failed.value


async def test_webhook_refusal_keeps_its_words(
    empty_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    said: list[str] = []
    why = "images of gpusteward/ are not signed"

    async with refusing_webhook(empty_cluster, why, resources={"": ["pods"]}):
        launch = launch_of(cluster_start(place=ONE_GPU), settings, report=said.append)
        of_pod = await refused(await runtime.start(launch), said, why)
    async with refusing_webhook(empty_cluster, why, resources={"apps": ["deployments"]}):
        with pytest.raises(AttemptFailed) as of_deployment:
            await runtime.start(launch_of(cluster_start(place=ONE_GPU), settings))

    assert of_pod.failure.kind is FailureKind.UNSCHEDULABLE
    assert why in of_pod.failure.message
    assert why in of_deployment.value.failure.message
