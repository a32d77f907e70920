"""How a function asks the platform: found as the command line finds it, asked once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.client.discovery import find_address
from shared.client.http import StewardClient

T = TypeVar("T")


async def ask_in_loop(question: Callable[[StewardClient], Awaitable[T]]) -> T:
    """Put one question to the platform, over connections that end with it."""
    async with StewardClient(find_address()) as client:
        return await question(client)
