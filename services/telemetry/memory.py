"""Holds an agent at the size that it has when it is ready."""

import asyncio
import gc
from typing import Final

COLLECT_SECONDS: Final = 60.0


def freeze() -> None:
    """Exempt everything that exists now from later collections, which then take next to no time."""
    gc.freeze()


async def collect_garbage() -> None:
    """A full collection once a minute, until cancelled.

    The interpreter starts one after so many allocations that an agent gets there in days; until
    then its free lists and reference cycles grow by tens of kilobytes a minute.
    """
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect()
