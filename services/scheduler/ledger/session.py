"""Connections beside the pool, for locks and notifications that belong to a session."""

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from shared.postgres.connecting import connect
from shared.postgres.database import COMMAND_TIMEOUT_SECONDS
from shared.postgres.outages import OUTSIDE_DOWN, unavailable

if TYPE_CHECKING:
    import asyncpg


@contextlib.asynccontextmanager
async def session(dsn: str, name: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection of its own. Raises UnavailableError if Postgres is away, also from the block."""
    try:
        connection = await connect(
            dsn,
            command_timeout=COMMAND_TIMEOUT_SECONDS,
            server_settings={"application_name": f"gpusteward-{name}"},
        )
        try:
            yield connection
        finally:
            with contextlib.suppress(*OUTSIDE_DOWN):
                await connection.close(timeout=1)
    except OUTSIDE_DOWN as error:
        raise unavailable(error) from error
