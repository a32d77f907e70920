"""One query to the platform, which is found as the command line finds it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.client.discovery import find_address
from shared.client.http import StewardClient

T = TypeVar("T")


async def query_platform(question: Callable[[StewardClient], Awaitable[T]]) -> T:
    """Ask the platform one question, over connections that close with the answer."""
    async with StewardClient(find_address()) as client:
        return await question(client)
