"""What the idle clock counts and what it does not."""

import asyncio
import sys
import time

import pytest

from tests.support.idle_clock import STEP_SECONDS, Clock, idle_thread, idle_time

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def burn() -> None:
    for number in range(2_000_000):
        hash(number)


async def test_virtual_time_stands_while_computing(
    idle_clock: Clock,
) -> None:
    began = idle_clock()

    burn()
    await asyncio.to_thread(burn)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", BURN)
    await child.wait()

    assert idle_clock() - began < 3 * STEP_SECONDS


async def test_timer_is_due_by_virtual_time(idle_clock: Clock) -> None:
    child = await asyncio.create_subprocess_exec("sleep", "30")
    began = idle_clock()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await child.wait()
    took = idle_clock() - began
    child.kill()
    await child.wait()

    assert took == pytest.approx(0.3)
    assert asyncio.get_running_loop().time() == idle_clock()


async def test_measuring_clock_runs_while_all_sleep() -> None:
    with idle_time(timers=False) as clock:
        began = clock()
        await asyncio.sleep(0.3)
        slept = clock() - began
        burn()
        computed = clock() - began - slept

    assert 0 < slept < 0.3 + 3 * STEP_SECONDS
    assert computed < 3 * STEP_SECONDS


def test_thread_clock_runs_while_this_sleeps() -> None:
    with idle_thread() as clock:
        time.sleep(0.3)
        slept = clock()

    assert 0 < slept < 0.3 + STEP_SECONDS
