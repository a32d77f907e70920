"""Which scheduler decides: one row, held for a few seconds by the database's clock.

The row alone counts. A lock of a session is beside it so that a standby need not wait for the row
to run out when the leader is gone: Postgres frees it with the dead process's connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from services.scheduler.ledger.session import session
from shared.errors import StewardError, UnavailableError
from shared.ids import new_id
from shared.logging import log
from shared.postgres.database import Connection, Database, Row
from shared.waiting import cancel_and_wait

SUCCESSION_LOCK: Final = 0x67707574
WATCH_SECONDS: Final = 1.0
KNOWN_SECONDS: Final = 5.0
FOR_GOOD_SECONDS: Final = 10 * 365 * 86_400.0

# Takes or renews the row: $1 holds it already, or it has run out, or its holder is known to be gone
# ($3). Every change of holder, and every gap in a holder's own time, is a new term.
_HOLD: Final = """
WITH mine AS (
    SELECT 1 FROM leader
    WHERE holder = $1 OR $3 OR expires_at <= clock_timestamp() FOR UPDATE {skip})
UPDATE leader SET expires_at = clock_timestamp() + $2 * interval '1 second',
    term = term + CASE WHEN holder = $1 AND expires_at > clock_timestamp() THEN 0 ELSE 1 END,
    holder = $1
WHERE EXISTS (SELECT 1 FROM mine) RETURNING term
"""
_HOLD_WAITING: Final = _HOLD.format(skip="")
_HOLD_OR_SKIP: Final = _HOLD.format(skip="SKIP LOCKED")
_RENEW: Final = """
UPDATE leader SET expires_at = clock_timestamp() + $3 * interval '1 second'
WHERE holder = $1 AND term = $2 AND expires_at > clock_timestamp() RETURNING term
"""
_GIVE_UP: Final = "UPDATE leader SET expires_at = '-infinity' WHERE holder = $1"
_CHECK: Final = """
SELECT pg_current_xact_id()::text AS xid FROM leader,
    set_config('idle_in_transaction_session_timeout', $3, true) AS idle,
    set_config('gpusteward.is_decision', $4, true) AS decision
WHERE holder = $1 AND term = $2 AND expires_at > clock_timestamp() FOR UPDATE OF leader
"""
# Before what is run in the same statement, which may be nothing else.
_CHECKED: Final = f"WITH leadership AS MATERIALIZED ({_CHECK}) "
_NOTHING_ELSE: Final = "SELECT FROM leadership"
_PAUSE: Final = "SELECT 1 FROM leader FOR UPDATE"
_QUEUE: Final = f"SELECT pg_advisory_lock({SUCCESSION_LOCK})"
_IS_KNOWN: Final = "SELECT true FROM pg_stat_activity WHERE pid = $1"
_ALIVE: Final = "SELECT 1"


class LeadershipLost(StewardError):
    """Another scheduler decides now, or this one was silent too long; nothing was committed."""


@dataclass(slots=True)
class Leadership:
    """This process's claim to the leader row. `term` is None while another holds it.

    One that `is_retired` has given up for good.
    """

    database: Database
    ttl_seconds: float
    holder: UUID = field(default_factory=new_id)
    term: int | None = None
    is_retired: bool = False
    _holding: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def hold(self, *, succeeds: bool = False) -> bool:
        """Take the row if it is free, or renew it; whether this process leads now.

        `succeeds`: its holder is known to be gone, so that the row need not have run out.
        """
        async with self._holding:
            return not self.is_retired and await self._take(succeeds=succeeds)

    async def _take(self, *, succeeds: bool) -> bool:
        # The leader waits for a transaction that has locked the row; a standby tries again later.
        statement = _HOLD_OR_SKIP if self.term is None and not succeeds else _HOLD_WAITING
        async with self.database.transaction() as connection:
            term = await connection.fetchval(statement, self.holder, self.ttl_seconds, succeeds)
        if term != self.term:
            log.info("leadership_changed", term=term, leads=term is not None)
            self.term = term
        return term is not None

    async def renew(self) -> None:
        """Keep the row for another while. One that has run out is not taken: the term is over."""
        async with self._holding:
            if self.term is None:
                return
            async with self.database.transaction() as connection:
                renewed = await connection.fetchval(
                    _RENEW, self.holder, self.term, self.ttl_seconds
                )
            if renewed is None:
                self.term = None

    async def give_up(self) -> None:
        """Let another scheduler take over at once; this one leads no more."""
        self.is_retired = True
        self.term = None
        async with self.database.transaction() as connection:
            await connection.execute(_GIVE_UP, self.holder)

    async def check(self, connection: Connection) -> None:
        """Lock the row until this transaction ends, as `check_and_fetch` does."""
        await self.check_and_fetch(connection, _NOTHING_ELSE)

    async def check_and_fetch(
        self, connection: Connection, query: str, *args: object, is_decision: bool = False
    ) -> Sequence[Row]:
        """Lock the row until this transaction ends, and run a query in the same statement.

        The query reads the one row of `leadership` before it locks or reads others, returns a row
        for it, and has its parameters from $5 on. `leadership.xid` is the transaction's id. With
        `is_decision` its changes wake no decision loop. Raises LeadershipLost if the row is not
        ours now. A process paused before this commits nothing; one paused after it is cut off by
        Postgres before others wait for long.
        """
        rows = await connection.fetch(
            _CHECKED + query,
            self.holder,
            self.term,
            f"{self.ttl_seconds * 1000:.0f}ms",
            "on" if is_decision else "off",
            *args,
        )
        if not rows:
            self.term = None
            raise LeadershipLost("the leader row is not ours any more")
        return rows


@dataclass(slots=True)
class Succession:
    """Takes over the moment the leader's process is gone."""

    leadership: Leadership
    on_succeeded: Callable[[], None]

    async def run(self) -> None:
        """Queue for the lock until retired, and hold it while this process leads.

        Raises UnavailableError while Postgres is away.
        """
        while not self.leadership.is_retired:
            async with session(self.leadership.database.dsn, "succession") as connection:
                await self._queue(connection)

    async def _queue(self, connection: "asyncpg.Connection[Any]") -> None:
        await self._wait_for_lock(connection)
        if not await self.leadership.hold(succeeds=True):
            return
        self.on_succeeded()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            # Paused and overtaken meanwhile: the lock belongs to the process that leads now.
            if self.leadership.term is None:
                return
            await connection.execute(_ALIVE)

    async def _wait_for_lock(self, connection: "asyncpg.Connection[Any]") -> None:
        """Wait as long as the primary knows this session: one that hangs or was demoted, and would
        keep it waiting for good, is left.
        """
        waiting = asyncio.ensure_future(connection.execute(_QUEUE, timeout=FOR_GOOD_SECONDS))
        try:
            while not (await asyncio.wait({waiting}, timeout=KNOWN_SECONDS))[0]:
                async with self.leadership.database.statements() as other:
                    if not await other.fetchval(_IS_KNOWN, connection.get_server_pid()):
                        raise UnavailableError("another server is the primary")
            await waiting
        finally:
            await cancel_and_wait(waiting)


async def pause_decisions(connection: Connection) -> None:
    """No leader decides before this transaction ends."""
    await connection.execute(_PAUSE)
