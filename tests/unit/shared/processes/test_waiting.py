"""Bounded waits lose no cancellation, whenever it comes."""

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from shared import waiting
from shared.waiting import ITEMS_PER_TURN, take_turns, wait_for, within

ENTERED = (waiting.__file__, asyncio.timeouts.__file__)


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 60.0, None])
async def test_pending_cancellation_is_not_lost(seconds: float | None) -> None:
    async def blocked() -> None:
        cancel_this_task()
        async with within(seconds):
            await asyncio.Event().wait()

    async def unset() -> None:
        cancel_this_task()
        await wait_for(asyncio.Event(), seconds)

    for waiter in (blocked(), unset()):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(waiter)


def test_signal_is_heeded_at_any_moment() -> None:
    """As asyncio's handler of SIGINT, it cancels the task in the middle of what it executes."""
    moments, _ = cancelled_at(None)

    lost = [moment for moment in range(moments) if not cancelled_at(moment)[1]]

    assert moments > 100
    assert lost == []


def cancelled_at(moment: int | None) -> tuple[int, bool]:
    """How many instructions an overdue wait executes, and whether cancelled at one it says so."""
    executed = 0

    def on_opcode(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        if event == "opcode":
            if executed == moment:
                cancel_this_task()
            executed += 1
        return on_opcode

    def on_call(frame: FrameType, _event: str, _: Any) -> Any:
        if frame.f_code.co_filename in ENTERED and frame.f_code.co_name != "_on_timeout":
            frame.f_trace_opcodes = True
            return on_opcode
        return None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        asyncio.run(overdue())
    except asyncio.CancelledError:
        return executed, True
    finally:
        sys.settrace(before)
    return executed, False


async def overdue() -> None:
    try:
        async with within(0):
            await asyncio.Event().wait()
    except TimeoutError:
        await asyncio.sleep(0)


async def test_bounded_wait_ends_while_cancelled() -> None:
    async def cleaning_up() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(TimeoutError):
                async with within(0.001):
                    await asyncio.Event().wait()
            return "cleaned up"
        return "never cancelled"

    task = asyncio.create_task(cleaning_up())
    await asyncio.sleep(0)
    task.cancel()

    assert await task == "cleaned up"


async def test_tasks_that_take_turns_alternate() -> None:
    done = ""

    async def work(name: str) -> None:
        nonlocal done
        async for _ in take_turns(range(2 * ITEMS_PER_TURN)):
            done += name

    await asyncio.gather(work("a"), work("b"))

    assert done == "".join(name * ITEMS_PER_TURN for name in "abab")
