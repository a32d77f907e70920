"""Loops that belong to the process."""

import asyncio
import contextlib

import pytest

from shared import background
from shared.background import Background
from shared.errors import UnavailableError
from shared.waiting import cancel_and_wait, wait_for, within


async def test_failed_loop_ends_owner_with_its_error() -> None:
    stopped = asyncio.Event()

    async def steady() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def failing() -> None:
        raise ZeroDivisionError("broken")

    async def own_both() -> None:
        loops = Background()
        async with loops.own_loops():
            loops.start("steady", steady)
            loops.start("failing", failing)
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError, match="broken"):
        await own_both()

    assert stopped.is_set()


async def test_lost_cancellation_keeps_no_owner_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "CANCEL_LOOP_AGAIN_SECONDS", 0.01)

    async def losing() -> None:
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):  # as nats-py may
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ZeroDivisionError("broken")

    async def own_both() -> None:
        loops = Background()
        async with within(30), loops.own_loops():
            loops.start("losing", losing)
            loops.start("failing", failing)
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError, match="broken"):
        await own_both()


async def test_loop_restarts_when_outside_was_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "FIRST_RETRY_SECONDS", 0.001)
    runs = 0
    ended = asyncio.Event()

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise UnavailableError("postgres is away")
        ended.set()

    loops = Background()
    async with loops.own_loops(), asyncio.timeout(30):
        loops.start("loop", loop)
        await ended.wait()

    assert runs == 4


async def test_loops_are_cancelled_and_awaited_at_end() -> None:
    cleaned_up = False
    running = asyncio.Event()

    async def loop() -> None:
        nonlocal cleaned_up
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up = True

    loops = Background()
    async with loops.own_loops(), asyncio.timeout(30):
        loops.start("loop", loop)
        await running.wait()
        await loops.stop()
        assert cleaned_up


async def test_a_loop_without_an_owner_is_refused() -> None:
    async def loop() -> None:
        pass

    with pytest.raises(RuntimeError, match="only while the process owns them"):
        Background().start("loop", loop)

    loops = Background()
    async with loops.own_loops():
        pass
    with pytest.raises(RuntimeError):
        loops.start("late", loop)


async def test_an_event_is_waited_for_no_longer_than_said() -> None:
    event = asyncio.Event()

    assert not await wait_for(event, 0.001)

    event.set()
    assert await wait_for(event, 0)
    assert await wait_for(event, None)


async def test_cancellation_with_event_is_not_lost() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_for(event, 60))
    await asyncio.sleep(0)

    event.set()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_lost_cancellation_is_repeated() -> None:
    async def lossy() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ZeroDivisionError

    task, failed = asyncio.create_task(lossy()), asyncio.create_task(failing())
    await asyncio.sleep(0)

    await cancel_and_wait(task, failed, again_seconds=0.001)

    assert task.cancelled()
    assert isinstance(failed.exception(), ZeroDivisionError)
