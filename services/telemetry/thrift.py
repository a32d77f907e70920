"""Keeps an agent at the size that it has when it is ready."""

import asyncio
import gc
from typing import Final

COLLECT_SECONDS: Final = 60.0


def set_apart() -> None:
    """What is there now stays: later collections pass it over, and take next to no time."""
    gc.freeze()


async def collect() -> None:
    """Collect everything once a minute, until cancelled.

    The interpreter does it after so many objects that an agent gets there in days; until then its
    lists of freed tuples and what hangs in cycles grow by tens of kilobytes a minute.
    """
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect()
