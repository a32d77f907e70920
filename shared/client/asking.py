"""How a plain function asks the platform: found as the command line finds it, asked once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.client.discovery import find_address
from shared.client.http import StewardClient

T = TypeVar("T")


def ask(question: Callable[[StewardClient], Awaitable[T]]) -> T:
    """Put one question to the platform. Must not be called inside a running event loop."""
    return asyncio.run(ask_in_loop(question))


async def ask_in_loop(question: Callable[[StewardClient], Awaitable[T]]) -> T:
    """Put one question to the platform, over connections that end with it."""
    async with StewardClient(find_address()) as client:
        return await question(client)
