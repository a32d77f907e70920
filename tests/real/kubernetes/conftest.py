"""A cluster's API and the runtimes that start engines there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.executor.journal.journal import Journal
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines, pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.kubernetes.ome_stand_in import (
    OmeStandIn,
    install_crds,
    missing_crds,
    ome_stand_in,
)
from tests.support.worlds.cluster_executor import ClusterRuntimes, runtimes_of_clusters


@pytest.fixture
async def api(empty_cluster: ControlPlane) -> AsyncIterator[Api]:
    async with empty_cluster.api() as calls:
        yield calls


@pytest.fixture
async def engines(empty_cluster: ControlPlane, api: Api) -> AsyncIterator[PodEngines]:
    """With two nodes of 8 GPUs."""
    await make_device_plugin_nodes(api, ["node-0", "node-1"])
    async with pod_engines(empty_cluster) as running:
        yield running


@pytest.fixture
async def ome(empty_cluster: ControlPlane, api: Api) -> AsyncIterator[OmeStandIn]:
    if (reason := missing_crds()) is not None:
        pytest.skip(reason)
    await install_crds(api)
    async with ome_stand_in(empty_cluster) as stand_in:
        yield stand_in


@pytest.fixture
async def runtimes() -> AsyncIterator[ClusterRuntimes]:
    async with runtimes_of_clusters() as made:
        yield made


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal(tmp_path / "journal.db").open()
    yield opened
    opened.close_nowait()
