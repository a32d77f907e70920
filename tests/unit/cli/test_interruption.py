"""Ctrl-C while a command has something to put in order."""

import asyncio
import os
import signal

import pytest

from services.cli.interruption import interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def pressed_twice(*, then_waits: bool) -> None:
    with interrupts() as interrupted:
        press()
        await interrupted.wait()
        press()
        if then_waits:
            await asyncio.sleep(60)


@pytest.mark.parametrize(
    "then_waits",
    [pytest.param(True, id="while it waits"), pytest.param(False, id="in the block's last step")],
)
async def test_the_second_one_cancels_what_the_first_one_had_put_in_order(then_waits: bool) -> None:
    with pytest.raises(asyncio.CancelledError):
        await pressed_twice(then_waits=then_waits)

    await asyncio.sleep(0)  # and cancels nothing after it


async def test_after_the_block_it_interrupts_whatever_is_done() -> None:
    with interrupts() as interrupted:
        press()
        await interrupted.wait()

    with pytest.raises(KeyboardInterrupt):
        press()
