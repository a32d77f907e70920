"""Events that commit with the state change they report, and the relay that publishes them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from schemas.backlog import Backlog, GetBacklog
from schemas.base import Event, subject_for
from shared import tracing
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus
from shared.messaging.codec import encode
from shared.postgres.database import Database, Row, Writer, note_staged
from shared.postgres.replication import AWAIT_STANDBY
from shared.waiting import heed_cancellation, wait_for

KEPT_HOURS: Final = 24
BATCH: Final = 200
IN_FLIGHT: Final = 50
IDLE_SECONDS: Final = 1.0
TRIM_SECONDS: Final = 600.0
INSERT: Final = """
INSERT INTO outbox (message_id, subject, body)
SELECT message_id, subject, body FROM unnest($1::uuid[], $2::text[], $3::bytea[])
    WITH ORDINALITY AS new (message_id, subject, body, place) ORDER BY place
ON CONFLICT (message_id) DO NOTHING
"""
# What happens to an aggregate without a message (a grant, a lease that ends) is of the trace of its
# first event, whichever process staged that.
INSERT_TRACED: Final = """
INSERT INTO outbox (message_id, subject, body, traceparent)
SELECT message_id, subject, body, coalesce(new.traceparent, (
    SELECT first.traceparent FROM outbox first WHERE first.traceparent IS NOT NULL
        AND substring(first.subject FROM '[^.]*$') = substring(new.subject FROM '[^.]*$')
    ORDER BY first.id LIMIT 1))
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::text[])
    WITH ORDINALITY AS new (message_id, subject, body, traceparent, place) ORDER BY place
ON CONFLICT (message_id) DO NOTHING
"""
SELECT_UNPUBLISHED: Final = f"""
SELECT id, message_id, subject, body, traceparent, {AWAIT_STANDBY} AS position FROM outbox
WHERE published_at IS NULL ORDER BY id LIMIT $1
"""
# No mark waits for the disk: one that a power cut takes is made again, and the stream drops what it
# has. What is read beside it waits for a synchronous standby, where there is one.
_MARK_PUBLISHED: Final = """
UPDATE outbox SET published_at = now()
FROM set_config('synchronous_commit', CASE WHEN current_setting('synchronous_standby_names') = ''
    THEN 'off' ELSE current_setting('synchronous_commit') END, true) WHERE id = ANY($1)
"""
_MARK_AND_SELECT: Final = f"""
WITH marked AS ({_MARK_PUBLISHED})
SELECT id, message_id, subject, body, traceparent, {AWAIT_STANDBY} AS position FROM outbox
WHERE published_at IS NULL AND id <> ALL($1) ORDER BY id LIMIT $2
"""
SELECT_AGE: Final = """
SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
FROM outbox WHERE published_at IS NULL
"""


async def stage(connection: Writer, *events: Event) -> None:
    """Write events in the transaction of their change; they are published after its commit."""
    if not events:
        return
    statement = INSERT_TRACED if tracing.is_on() else INSERT
    await connection.execute(statement, *event_columns(events))
    note_staged(outbox=True)


def event_columns(events: Sequence[Event]) -> list[list[Any]]:
    """Return what `INSERT` takes, and while tracing is on `INSERT_TRACED`."""
    columns: list[list[Any]] = [
        [event.message_id for event in events],
        [subject_for(event) for event in events],
        [encode(event) for event in events],
    ]
    if tracing.is_on():
        columns.append([tracing.traceparent_of(event) for event in events])
    return columns


async def store_dead_letter(database: Database, subject: str, body: bytes, error: str) -> None:
    """Store a message that was given up for people to read. Raises UnavailableError."""
    log.error("dead_letter", subject=subject, error=error)
    async with database.transaction() as connection:
        await connection.execute(
            "INSERT INTO dead_letter (subject, body, error) VALUES ($1, $2, $3)",
            *(subject, body, error.replace("\0", "\ufffd")),
        )


async def outbox_age_seconds(database: Database) -> float:
    """Return the age of the oldest unpublished event; 0 if all are published. Raises
    UnavailableError.
    """
    async with database.statements() as connection:
        age: float = await connection.fetchval(SELECT_AGE)
    return max(0.0, age)


def _waves(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows in order, in parts in which every event is of another aggregate."""
    wave: dict[str, Row] = {}
    for row in rows:
        key = row["subject"].rpartition(".")[2]
        if key in wave or len(wave) == IN_FLIGHT:
            yield list(wave.values())
            wave = {}
        wave[key] = row
    if wave:
        yield list(wave.values())


@dataclass(slots=True)
class Relay:
    """Publishes staged events, stores them for 24 h, publishes them again into a new stream.

    Those of one aggregate go one after another, in order.

    Two relays on one outbox publish twice; the message id lets the stream drop the second.
    """

    database: Database
    bus: Bus

    async def run(self) -> None:
        """Publish until cancelled. Raises UnavailableError when Postgres or the bus is down."""
        trimmed = float("-inf")
        published: list[int] = []
        try:
            while True:
                self.database.outbox_wake.clear()
                rows = await self._mark_and_select(published)
                published.clear()
                await self._publish_all(rows, published)
                now = asyncio.get_running_loop().time()
                if now - trimmed > TRIM_SECONDS:
                    await self._trim()
                    trimmed = now
                if not rows:
                    await wait_for(self.database.outbox_wake, IDLE_SECONDS)
        finally:
            await self._mark(published)

    async def backlog(self, _: GetBacklog) -> Backlog:
        """Raises UnavailableError when Postgres is down."""
        return Backlog(outbox_age_seconds=await outbox_age_seconds(self.database))

    async def stream_seen(self, stream: str, created_at: datetime) -> None:
        """Compare a stream with the one published into last; if it is another, publish all anew."""
        async with self.database.transaction() as connection:
            last_sequence = await connection.fetchval(
                "SELECT created_at FROM relay_state WHERE stream = $1 FOR UPDATE", stream
            )
            if last_sequence == created_at:
                return
            await connection.execute(
                "INSERT INTO relay_state (stream, created_at) VALUES ($1, $2)"
                " ON CONFLICT (stream) DO UPDATE SET created_at = $2",
                stream,
                created_at,
            )
            if last_sequence is None:
                return
            count = await connection.fetchval(
                "WITH again AS (UPDATE outbox SET published_at = NULL"
                " WHERE published_at IS NOT NULL RETURNING 1) SELECT count(*) FROM again"
            )
            note_staged(outbox=True)
        log.warning("outbox_republishing", stream=stream, events=count)

    async def _mark_and_select(self, published: list[int]) -> Sequence[Row]:
        async with self.database.statements() as connection:
            if not published:
                return await connection.fetch(SELECT_UNPUBLISHED, BATCH)
            return await connection.fetch(_MARK_AND_SELECT, published, BATCH)

    async def _publish_all(self, rows: Sequence[Row], published: list[int]) -> None:
        """Publish events; adds to `published` what is in its stream, also where another fails."""
        for wave in _waves(rows):
            done = await asyncio.gather(*map(self._publish, wave), return_exceptions=True)
            published += [result for result in done if isinstance(result, int)]
            for error in done:
                if isinstance(error, BaseException):
                    raise error
            heed_cancellation()

    async def _publish(self, row: Row) -> int:
        """Publish one event; its place in the outbox."""
        message_id: UUID = row["message_id"]
        try:
            await self.bus.publish_stored(
                row["subject"], row["body"], message_id, row["traceparent"]
            )
        except RefusedError as error:
            # Left where it is it would hold up everything behind it.
            await store_dead_letter(self.database, row["subject"], row["body"], error.message)
        return int(row["id"])

    async def _mark(self, ids: list[int]) -> None:
        if not ids:
            return
        async with self.database.statements() as connection:
            await connection.execute(_MARK_PUBLISHED, ids)

    async def _trim(self) -> None:
        try:
            async with self.database.transaction() as connection:
                await connection.execute(
                    "DELETE FROM outbox WHERE published_at < now() - $1 * interval '1 hour'",
                    KEPT_HOURS,
                )
                await connection.execute(
                    "DELETE FROM command WHERE created_at < now() - interval '7 days'"
                )
                await connection.execute(
                    "DELETE FROM dead_letter WHERE created_at < now() - interval '30 days'"
                )
        except UnavailableError as error:
            log.warning("outbox_trim_failed", error=str(error))
