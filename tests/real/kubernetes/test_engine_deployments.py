"""Engines in a real control plane, without OME and with its stand-in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.executor import Runtime
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines, pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.worlds.cluster_executor import (
    ClusterRuntimes,
    cluster_settings,
    cluster_start,
    runtimes_of_clusters,
)
from tests.support.worlds.runtime_launches import labels_of, launch_of

READY_SECONDS = 60.0


@pytest.fixture
async def runtimes() -> AsyncIterator[ClusterRuntimes]:
    async with runtimes_of_clusters() as made:
        yield made


@pytest.fixture
async def engines(empty_cluster: ControlPlane) -> AsyncIterator[PodEngines]:
    async with empty_cluster.api() as api:
        await make_device_plugin_nodes(api, ["node-0", "node-1"])
    async with pod_engines(empty_cluster) as running:
        yield running


async def test_an_engine_without_ome_answers_logs_and_goes(
    empty_cluster: ControlPlane, engines: PodEngines, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start()
    said: list[str] = []
    launch = launch_of(command, settings, report=said.append)

    engine = await runtime.start(launch)
    await engine.until_ready(READY_SECONDS)
    [workload] = await runtime.workloads()
    await engine.stop(1.0)

    assert workload.labels == labels_of(command, settings)
    assert said[-1].endswith("is ready")
    assert "listening on http://127.1." in launch.log.tail(10)
    assert await runtime.workloads() == ()
