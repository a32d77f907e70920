"""A platform under load is backed up and dies; the restored one goes on, beside nodes that live."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from shared.testing import eventually, short_directory
from tests.support.processes.platform import (
    PlatformProcess,
    assert_ledger_sound,
    marked_processes,
    quick_task,
)
from tests.support.processes.second_machine import second_machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NODES = ("alpha", "beta")
QUICK = {"GPUSTEWARD_SCHEDULER_RECONCILE_INTERVAL_SECONDS": "1"}


@pytest.fixture
async def platform() -> AsyncIterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--node-id", NODES[0]),
            environment=QUICK,
        )
        await running.start()
        installation = str(running.directory.installation_id())
        try:
            yield running
        finally:
            await running.stop()
        await eventually(lambda: not marked_processes(installation), within_seconds=30)


def long_task(name: str) -> dict[str, Any]:
    """Eight experiments of seconds, two at a time on every node."""
    task = quick_task(name)
    task["parameters"] = {
        "ttft-seconds": [0.005, 0.01],
        "tpot-seconds": [0.02],
        "slots": [1, 2, 4, 8],
    }
    task["optimization"]["max_parallel"] = 4
    task["benchmark"]["max_requests_per_iteration"] = 20
    return task


async def states(platform: PlatformProcess, task_id: str) -> dict[str, str]:
    _, body = await platform.request("GET", f"/api/v1/tasks/{task_id}/experiments")
    return {row["experiment_id"]: row["state"] for row in body["experiments"]}


async def holders(platform: PlatformProcess) -> set[str]:
    """The nodes on which something is held by a live reservation."""
    _, found = await platform.request("GET", "/api/v1/gpus")
    return {gpu["node_id"] for gpu in found["gpus"] if gpu.get("state") == "held"}


async def test_restored_platform_goes_on(platform: PlatformProcess) -> None:
    with second_machine(platform, platform.data_dir.parent / "beta", NODES[1]):
        await platform.request("POST", "/api/v1/secrets/KEPT_TOKEN", {"value": "kept over all"})
        task_id = await platform.submit(long_task("backed-up") | {"secrets": ["KEPT_TOKEN"]})

        async def is_busy() -> bool:
            found = list((await states(platform, task_id)).values())
            return found.count("succeeded") >= 2 and await holders(platform) == set(NODES)

        await eventually(is_busy, within_seconds=60, what="experiments done and running on both")
        measured = [e for e in await platform.experiments(task_id) if e["state"] == "succeeded"]
        first, second = [
            await platform.start_command("backup", "create", "--json", "--to", str(path))
            for path in (platform.data_dir.parent / "a.zip", platform.data_dir.parent / "b.zip")
        ]
        assert (await first.wait(), await second.wait()) == (0, 0)
        before = await states(platform, task_id)

        # Work that no backup knows, on a node that lives on.
        async def has_moved_on() -> bool:
            return await states(platform, task_id) != before and NODES[1] in await holders(platform)

        await eventually(has_moved_on, within_seconds=60, what="work after the backup")
        assert platform.process is not None
        platform.process.kill()
        platform.process.wait()
        restored = PlatformProcess(
            platform.data_dir.parent / "restored",
            port=platform.port,
            arguments=platform.arguments,
            environment=QUICK,
        )
        code, out, err = await restored.command(
            "backup", "restore", str(platform.data_dir.parent / "a.zip")
        )
        assert code == 0, err
        assert "GPUs wait until their nodes have reported" in out

        try:
            await restored.start()
            view = await restored.until_finished(task_id, within_seconds=150)

            assert view["state"] == "completed"
            after = await states(restored, task_id)
            assert set(after.values()) == {"succeeded"}
            async with restored.postgres() as connection:
                epochs = await connection.fetch(
                    "SELECT epoch, granted_at > (SELECT restored_at FROM scheduler.restore) AS late"
                    " FROM scheduler.reservation WHERE epoch IS NOT NULL"
                )
            old = [row["epoch"] for row in epochs if not row["late"]]
            new = [row["epoch"] for row in epochs if row["late"]]
            assert min(new) > max(old) + 2**31
            ended = {e["experiment_id"]: e for e in await restored.experiments(task_id)}
            for experiment in measured:
                assert ended[experiment["experiment_id"]] == experiment
            await assert_ledger_sound(restored)
        finally:
            with suppress(AssertionError):
                await restored.stop()
