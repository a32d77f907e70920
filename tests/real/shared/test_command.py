"""Programs of the host, and that nothing is left of them."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from shared.processes.command import run_command
from shared.testing import eventually
from tests.support.paths import ROOT
from tests.support.processes.children import children_named

WAITS = """
import asyncio
from shared.processes.command import run_command
asyncio.run(run_command(("/bin/sleep", "61"), deadline_seconds=60))
"""


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


async def test_repeated_cancellation_leaves_nothing() -> None:
    """Who waits for a cancelled task cancels it again where that takes long."""
    before = descriptors()
    running = asyncio.ensure_future(run_command(("sleep", "61"), deadline_seconds=60))
    await eventually(lambda: bool(children_named("sleep")), what="the program")
    for _ in range(50):  # asyncio connects its pipes, which takes turns of the loop and no time
        await asyncio.sleep(0)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)

    with suppress(asyncio.CancelledError):
        await running
    assert descriptors() <= before
    assert children_named("sleep") == []


@pytest.mark.parametrize("path", [os.environ["PATH"], ""], ids=["by setpriv", "without it"])
async def test_child_is_killed_with_its_waiting_process(path: str) -> None:
    waiting = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WAITS), cwd=ROOT, env={"PATH": path}
    )
    try:
        at = psutil.Process(waiting.pid)
        await eventually(
            lambda: [each.name() for each in at.children()] == ["sleep"], what="the program"
        )
        [program] = at.children()
    finally:
        waiting.kill()
        await waiting.wait()

    await eventually(lambda: not program.is_running(), what="its end")


async def test_a_program_that_cannot_start_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "text").touch()

    missing, text = [
        await run_command((str(tmp_path / name),), deadline_seconds=10) for name in ("none", "text")
    ]

    assert missing.failure.startswith("it does not start: [Errno 2]")
    assert text.failure.startswith("it does not start: [Errno 13]")
