"""Has what was read survive with the synchronous standby before anything is told of it.

A commit waits for that standby, and nobody sees it before. But where the wait is cut short, by a
client's timeout or its end, Postgres shows the commit all the same (it warns of it: "might not have
been replicated"). Read after that and told, it could be lost with the primary.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shared.postgres.database import Connection

# Writes a mark behind everything that this statement can see, so that its own commit waits for all
# of that. NULL, and nothing is written, where no standby is synchronous.
AWAIT_STANDBY: Final = """
(SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
    THEN pg_logical_emit_message(true, 'gpusteward', '') END)
"""


async def await_standby(connection: "Connection") -> None:
    """Have the commit of the running transaction wait for all that it can see by now."""
    await connection.fetchval(f"SELECT {AWAIT_STANDBY}")
