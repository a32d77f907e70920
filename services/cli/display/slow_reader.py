"""Output for as long as a command follows something, whose reader may rest, as `less` does."""

import asyncio
import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Final

import click

CHUNK_BYTES: Final = select.PIPE_BUF  # a pipe that is writable takes as much without blocking


async def say(text: str, *, err: bool = False) -> None:
    """click.echo that lets everything else go on, an interruption first, until it is taken."""
    stream = sys.stderr if err else sys.stdout
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # a stand-in, which keeps what it is given
        click.echo(text, err=err)
        return
    stream.flush()
    data = f"{text}\n".encode(stream.encoding, stream.errors or "strict")
    while data:
        await _until_writable(descriptor)
        data = data[os.write(descriptor, data[:CHUNK_BYTES]) :]


async def say_printed(prints: Callable[[], None]) -> None:
    """`say` what a function prints by click.echo."""
    printed = io.StringIO()
    printed.isatty = sys.stdout.isatty  # type: ignore[method-assign]  # click asks it for colours
    with redirect_stdout(printed):
        prints()
    await say(printed.getvalue().removesuffix("\n"))


async def _until_writable(descriptor: int) -> None:
    """A file always is, which an event loop refuses to watch."""
    if select.select([], [descriptor], [], 0)[1]:
        return
    writable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_writer(descriptor, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(descriptor)
