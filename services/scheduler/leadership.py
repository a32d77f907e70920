"""Which scheduler decides: one row, held for a few seconds by the database's clock.

The row alone counts. A lock of a session is beside it so that a standby need not wait for the row
to run out when the leader is gone: Postgres frees it with the dead process's connection.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from shared.database import OUTSIDE_DOWN, Connection, Database
from shared.errors import StewardError, UnavailableError
from shared.ids import new_id
from shared.logging import log

SUCCESSION_LOCK: Final = 0x67707574
WATCH_SECONDS: Final = 1.0
CONNECT_SECONDS: Final = 10.0


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
    _holding: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold(self, *, succeeds: bool = False) -> bool:
        """Take the row if nobody holds it, or keep it; whether this process leads now.

        `succeeds`: its holder is known to be gone, so that the row need not have run out.
        """
        async with self._holding:
            return not self._is_retired and await self._take(succeeds=succeeds)

    async def _take(self, *, succeeds: bool) -> bool:
        # Who leads waits for whoever has locked the row; who does not is in no hurry.
        skip = "SKIP LOCKED" if self.term is None and not succeeds else ""
        async with self.database.transaction() as connection:
            term = await connection.fetchval(
                "WITH mine AS (SELECT 1 FROM leader"
                f" WHERE holder = $1 OR $3 OR expires_at <= clock_timestamp() FOR UPDATE {skip})"
                " UPDATE leader SET expires_at = clock_timestamp() + $2 * interval '1 second',"
                " term = term + CASE WHEN holder = $1 AND expires_at > clock_timestamp()"
                " THEN 0 ELSE 1 END, holder = $1"
                " WHERE EXISTS (SELECT 1 FROM mine) RETURNING term",
                self.holder,
                self.ttl_seconds,
                succeeds,
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

    async def check(self, connection: Connection) -> str:
        """Lock the row until this transaction ends; the transaction's id.

        Raises LeadershipLost if the row is not ours now. A process paused before this commits
        nothing; one paused after it is cut off by Postgres before it can keep others waiting for
        long.
        """
        xid = await connection.fetchval(
            "SELECT pg_current_xact_id()::text FROM leader, set_config("
            "'idle_in_transaction_session_timeout', $3, true)"
            " WHERE holder = $1 AND term = $2 AND expires_at > clock_timestamp()"
            " FOR UPDATE OF leader",
            self.holder,
            self.term,
            f"{self.ttl_seconds * 1000:.0f}ms",
        )
        if xid is None:
            self.term = None
            raise LeadershipLost("the leader row is not ours any more")
        return str(xid)


@dataclass(slots=True)
class Succession:
    """Takes over the moment the leader's process is gone."""

    leadership: Leadership
    on_succeeded: Callable[[], None]

    async def run(self) -> None:
        """Queue for the lock until cancelled, and hold it while this process leads.

        Raises UnavailableError while Postgres is away.
        """
        dsn = self.leadership.database.dsn
        while True:
            try:
                connection = await asyncpg.connect(
                    dsn,
                    timeout=CONNECT_SECONDS,
                    server_settings={"application_name": "gpusteward-succession"},
                )
                try:
                    await self._queue(connection)
                finally:
                    await _close(connection)
            except OUTSIDE_DOWN as error:
                raise UnavailableError(f"postgres: {error!r}") from error

    async def _queue(self, connection: Any) -> None:
        await connection.execute(f"SELECT pg_advisory_lock({SUCCESSION_LOCK})", timeout=None)
        if not await self.leadership.hold(succeeds=True):
            return
        self.on_succeeded()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            # Who was paused and overtaken hands the lock on to whoever leads now.
            if self.leadership.term is None:
                return
            await connection.execute("SELECT 1")


async def _close(connection: Any) -> None:
    with contextlib.suppress(*OUTSIDE_DOWN):
        await connection.close(timeout=1)


async def pause_decisions(connection: Connection) -> None:
    """Keep whoever leads from deciding before this transaction ends."""
    await connection.execute("SELECT 1 FROM leader FOR UPDATE")
