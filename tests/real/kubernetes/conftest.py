"""A cluster's API and the runtimes that start engines there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.executor.journal.journal import Journal
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.worlds.cluster_executor import ClusterRuntimes, runtimes_of_clusters


@pytest.fixture
async def api(empty_cluster: ControlPlane) -> AsyncIterator[Api]:
    async with empty_cluster.api() as calls:
        yield calls


@pytest.fixture
async def runtimes() -> AsyncIterator[ClusterRuntimes]:
    async with runtimes_of_clusters() as made:
        yield made


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal(tmp_path / "journal.db").open()
    yield opened
    opened.close_nowait()
