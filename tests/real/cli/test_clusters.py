"""GPUs of a Kubernetes cluster, asked for by the command."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from tests.support.fakes.gateway import StubGateway
from tests.support.processes.command_line import Command
from tests.support.worlds.gateway import gateway
from tests.support.worlds.scheduler import scheduler, world
from tests.support.worlds.scheduler_cluster import reporting


@pytest.fixture
async def command(nats_url: str, postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Command]:
    async with (
        world(nats_url) as around,
        scheduler(nats_url, postgres_dsn),
        gateway(nats_url, postgres_dsn) as api,
        reporting(around),
    ):
        yield Command(StubGateway(), api.url, tmp_path)


@pytest.mark.long
async def test_cluster_reservation_prints_pod_limits(
    command: Command,
) -> None:
    could = await command("availability", "--gpus", "8", "--cluster", "k8s", "--wait", "30")
    unknown = await command("availability", "--gpus", "8", "--cluster", "other")
    held = await command("reserve", "--gpus", "2", "--cluster", "--node", "gpu.1")
    reservation_id = held.out.split("gpusteward release ")[1].split("`")[0]
    replayed = await command("replay", reservation_id)
    back = await command("release", reservation_id)
    left = await command("reserve", "--gpus", "2", "--cluster", "k8s", "--no-select-node")

    assert (could.code, could.err) == (0, "")
    assert "gpu.0: 8 of 8 allocatable GPUs idle" in could.out
    assert unknown.code == EXIT_CODE[ErrorCode.UNSATISFIABLE]
    assert "waits for a view of cluster other" in unknown.out
    assert (held.code, held.err) == (0, "")
    assert "k8s/gpu.1" in held.out
    for line in (
        "gpu.1: 8 of 8 allocatable GPUs idle, no metrics",
        f"  label         gpusteward.reservation: {reservation_id}",
        "  nodeSelector  kubernetes.io/hostname: gpu.1",
        "  limit         nvidia.com/gpu: 2",
    ):
        assert line in held.out.splitlines()
    assert "is not recorded" in replayed.err
    assert back.code == 0
    assert "left to the cluster's scheduler: the request selects no node" in left.out
    assert "nodeSelector" not in left.out
