"""Tasks under random accidents: any service or server killed at any moment, the bus store lost."""

import asyncio
import random
import shutil
import sys
import time
from collections import Counter

import pytest

from shared.testing import short_directory
from tests.support.processes.platform import (
    PlatformProcess,
    assert_sound,
    marked_processes,
    quick_task,
)

VICTIMS = (
    "telemetry",
    "scheduler",
    "orchestrator",
    "executor",
    "results",
    "gateway",
    "nats",
    "postgres",
)
FAULT_SECONDS = 60.0
TASKS = 3


async def inflict(platform: PlatformProcess, dice: random.Random, done: Counter[str]) -> None:
    """Kill something every one to three seconds; every fifth time the bus loses its store too."""
    deadline = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < deadline:
        await asyncio.sleep(dice.uniform(1.0, 3.0))
        victim = dice.choice(VICTIMS)
        if victim == "nats" and dice.random() < 0.5:
            shutil.rmtree(platform.directory.nats / "jetstream", ignore_errors=True)
            done["store lost"] += 1
        platform.kill(victim)
        done[victim] += 1


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
async def test_tasks_complete_under_random_kills(seed: int) -> None:
    dice = random.Random(seed)
    done: Counter[str] = Counter()
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        await platform.start()
        installation = str(platform.directory.installation_id())
        try:
            tasks = []
            for number in range(TASKS):
                task = quick_task(f"random-{number}")
                task["parameters"]["slots"] = [1, 2, 4]
                task["optimization"]["max_attempts"] = 50
                tasks.append(await platform.submit(task))

            await inflict(platform, dice, done)

            for task_id in tasks:
                view = await platform.until_finished(task_id, within_seconds=200)
                assert view["state"] == "completed", view
                await assert_sound(platform, task_id)
        finally:
            await platform.stop()
        assert marked_processes(installation) == []
    sys.stdout.write(f"seed {seed}: {dict(done)}\n")
