"""Ctrl-C while a command has something to put in order."""

import asyncio
import os
import signal
import threading
import time
from hashlib import pbkdf2_hmac

import pytest

from services.cli.interruption import interrupts, run
from tests.support.interruption import pending_signals


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def press_twice(when: threading.Event) -> None:
    when.wait()
    for _ in range(2):
        press()
        while signal.SIGINT in pending_signals(os.getpid()):
            time.sleep(0.001)


async def pressed_twice(*, then_waits: bool) -> None:
    async with interrupts() as interrupted:
        press()
        await interrupted.wait()
        press()
        if then_waits:
            await asyncio.sleep(60)


@pytest.mark.parametrize(
    "then_waits",
    [pytest.param(True, id="while it waits"), pytest.param(False, id="in the block's last step")],
)
async def test_second_interrupt_cancels_cleanup(then_waits: bool) -> None:
    with pytest.raises(asyncio.CancelledError):
        await pressed_twice(then_waits=then_waits)

    await asyncio.sleep(0)  # and cancels nothing after it


async def test_two_while_one_call_goes_on_are_two() -> None:
    begins = threading.Event()

    async def pressed_meanwhile() -> None:
        async with interrupts():
            begins.set()
            pbkdf2_hmac("sha256", b"heeds no signal", b"", 300_000)
            await asyncio.sleep(60)

    presser = threading.Thread(target=press_twice, args=(begins,))
    presser.start()
    with pytest.raises(asyncio.CancelledError):
        await pressed_meanwhile()
    presser.join()


async def test_interrupt_after_block_raises() -> None:
    async with interrupts() as interrupted:
        press()
        await interrupted.wait()

    with pytest.raises(KeyboardInterrupt):
        press()


def test_cancelled_work_ends_like_ctrl_c() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(KeyboardInterrupt):
        run(work())
