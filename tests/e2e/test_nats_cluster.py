"""The platform on a cluster of three NATS servers, of which one dies and one comes back empty."""

from pathlib import Path

import pytest

from shared.testing import short_directory
from tests.support.nats_cluster import nats_cluster
from tests.support.processes.platform import PlatformProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


async def test_platform_runs_on_a_list_of_servers(tmp_path: Path) -> None:
    with short_directory() as directory:
        async with nats_cluster(directory / "nats") as cluster:
            first = cluster.servers[0]
            platform = PlatformProcess(
                tmp_path / "data",
                arguments=(
                    "--simulate",
                    *("--nats", cluster.url),
                    *("--nats-credentials", str(first.credentials_path)),
                ),
            )
            await first.crash()  # the list's first member is not needed

            try:
                await platform.start()

                status, _ = await platform.request("GET", "/readyz")
            finally:
                await platform.stop()

    assert status == 200
