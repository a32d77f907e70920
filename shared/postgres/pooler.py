"""Recognises a connection pooler between a service and Postgres, and says why it cannot be used."""

from typing import TYPE_CHECKING, Any, Final

import asyncpg

from shared.ids import new_id
from shared.postgres.connecting import connect
from shared.settings import SettingsError

if TYPE_CHECKING:
    from shared.postgres.database import Connection

ADVICE: Final = "give the address of Postgres itself; a service keeps few connections"
TRANSACTION_POOLER: Final = (
    "a pooler in transaction mode, such as PgBouncer's pool_mode=transaction, stands before "
    "Postgres: LISTEN, advisory locks and prepared statements belong to a session, and it gives "
    f"each transaction another one; {ADVICE}"
)
LOST_ROLE: Final = (
    "what stands before Postgres, a pooler such as PgBouncer, does not hand on the role and the "
    f"search_path that a service asks for when it connects; {ADVICE}"
)
_NOT_HANDED_ON: Final = "unsupported startup parameter"  # as PgBouncer says it
_MARK: Final = "SELECT set_config('gpusteward.session_mark', $1, false)"
_READ_MARK: Final = "SELECT current_setting('gpusteward.session_mark', true)"


class PoolerRefused(SettingsError):
    """The address leads to a pooler that the services cannot work with."""


async def refuse_pooler(connection: "asyncpg.Connection[Any]", dsn: str) -> None:
    """Raise PoolerRefused where another client meets the session of this connection.

    Postgres tells a client its own process; a pooler tells a number of its own, and what is set in
    a session whose transaction is over is seen by the next client of a pooler in transaction mode.
    """
    async with connection.transaction():  # or a pooler takes the statement elsewhere half-way
        process_id = await connection.fetchval("SELECT pg_backend_pid()")
    if process_id == connection.get_server_pid():
        return
    mark = str(new_id())
    async with connection.transaction():
        await connection.fetchval(_MARK, mark)
    other = await connect(dsn)
    try:
        async with other.transaction():
            is_shared = await other.fetchval(_READ_MARK) == mark
    finally:
        await other.close(timeout=1)
    if is_shared:
        raise PoolerRefused(TRANSACTION_POOLER)


async def refuse_lost_role(connection: "Connection", role: str) -> None:
    """Raise PoolerRefused unless the session acts as the role that was asked for."""
    if await connection.fetchval("SELECT current_user") != role:
        raise PoolerRefused(LOST_ROLE)


def is_pooler_refusal(error: BaseException) -> bool:
    """Return True for what PgBouncer answers to a client that asks for a role."""
    return isinstance(error, asyncpg.ProtocolViolationError) and _NOT_HANDED_ON in str(error)
