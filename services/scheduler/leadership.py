"""Which scheduler decides: one row, held for a few seconds by the database's clock."""

from dataclasses import dataclass, field
from uuid import UUID

from shared.database import Connection, Database
from shared.errors import StewardError
from shared.ids import new_id
from shared.logging import log


class LeadershipLost(StewardError):
    """Another scheduler decides now, or this one was silent too long; nothing was committed."""


@dataclass(slots=True)
class Leadership:
    """This process's claim to the leader row. `term` is None while another holds it."""

    database: Database
    ttl_seconds: float
    holder: UUID = field(default_factory=new_id)
    term: int | None = None
    _is_retired: bool = False

    async def hold(self) -> bool:
        """Take the row if nobody holds it, or keep it; whether this process leads now."""
        if self._is_retired:
            return False
        async with self.database.transaction() as connection:
            term = await connection.fetchval(
                "WITH mine AS (SELECT 1 FROM leader"
                " WHERE holder = $1 OR expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED)"
                " UPDATE leader SET expires_at = clock_timestamp() + $2 * interval '1 second',"
                " term = term + CASE WHEN holder = $1 AND expires_at > clock_timestamp()"
                " THEN 0 ELSE 1 END, holder = $1"
                " WHERE EXISTS (SELECT 1 FROM mine) RETURNING term",
                self.holder,
                self.ttl_seconds,
            )
        if term != self.term:
            log.info("leadership_changed", term=term, leads=term is not None)
            self.term = term
        return term is not None

    async def give_up(self) -> None:
        """Let another scheduler take over at once; this one leads no more."""
        self._is_retired = True
        self.term = None
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE leader SET expires_at = '-infinity' WHERE holder = $1", self.holder
            )

    async def check(self, connection: Connection) -> None:
        """Lock the row until this transaction ends. Raises LeadershipLost if it is not ours now.

        A process paused before this commits nothing; one paused after it is cut off by Postgres
        before it can keep others waiting for long.
        """
        await connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', $1, true)",
            f"{self.ttl_seconds * 1000:.0f}ms",
        )
        held = await connection.fetchval(
            "SELECT true FROM leader WHERE holder = $1 AND term = $2"
            " AND expires_at > clock_timestamp() FOR UPDATE",
            self.holder,
            self.term,
        )
        if not held:
            self.term = None
            raise LeadershipLost("the leader row is not ours any more")


async def pause_decisions(connection: Connection) -> None:
    """Keep whoever leads from deciding before this transaction ends."""
    await connection.execute("SELECT 1 FROM leader FOR UPDATE")
