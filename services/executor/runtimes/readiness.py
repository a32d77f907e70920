"""Waiting until a started engine answers HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from schemas.executor.attempts import FailureKind
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.engine import EngineCommand
from services.executor.runtimes.runtime import LogSink
from shared.waiting import within

PROBE_TIMEOUT_SECONDS: Final = 2.0
LOG_LINES_READ: Final = 4_000  # the cause may stand far above the end of a parent process


@asynccontextmanager
async def readiness_probe(
    command: EngineCommand, log: LogSink, timeout_seconds: float
) -> AsyncIterator[aiohttp.ClientSession]:
    """The session to ask with. Raises AttemptFailed where the body takes longer than that."""
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS)
    try:
        async with (
            within(timeout_seconds),
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
        ):
            yield session
    except TimeoutError:
        raise AttemptFailed.of(
            FailureKind.READINESS_TIMEOUT,
            f"expected {command.engine} to answer {command.readiness_path} "
            f"within {timeout_seconds:g} s",
            log_text=log.tail(LOG_LINES_READ),
        ) from None


async def is_ready(
    session: aiohttp.ClientSession, url: str, *, allow_redirects: bool = True
) -> bool:
    """Return whether the URL is answered with 200."""
    try:
        async with session.get(url, allow_redirects=allow_redirects) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
