"""Programs of the host, and that nothing is left of them."""

import asyncio
from contextlib import suppress
from pathlib import Path

from shared.processes.command import run_command
from shared.testing import eventually
from tests.support.processes.children import children_named


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


async def test_nothing_is_left_however_often_it_is_cancelled() -> None:
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
