"""Sets right what clients hold of a gateway whose database came from a backup."""

from datetime import datetime
from typing import Final

from services.gateway.ledger.migrations import MIGRATIONS
from shared.postgres import after_restore
from shared.postgres.database import Connection

# A client goes on after a cursor that was given since the backup: every event from now on has to
# come after it.
_RAISE_CURSOR: Final = """
SELECT setval(pg_get_serial_sequence('event', 'cursor'), greatest(
    (SELECT coalesce(max(cursor), 0) FROM event) + (1::bigint << 32),
    extract(epoch FROM clock_timestamp())::bigint << 20))
"""
# What works once may have been used since, and who was logged in may have logged out.
_FORGET: Final = """
WITH links AS (DELETE FROM login_link), invitations AS (DELETE FROM node_invitation),
    logins AS (DELETE FROM login RETURNING 1)
SELECT count(*) FROM logins
"""


async def set_right(connection: Connection, _: datetime) -> dict[str, int]:
    """Raise the cursors, and end what may have been used up since."""
    await connection.execute(_RAISE_CURSOR)
    return {"logins_ended": await connection.fetchval(_FORGET)}


if __name__ == "__main__":
    after_restore.run("gateway", MIGRATIONS, set_right)
