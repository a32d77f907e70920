"""Every event of the stream, in Postgres, under cursors that only grow."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.base import Event, tag_of
from schemas.executor.attempts import ExecutorReported
from schemas.gateway.views import StoredEvent
from schemas.telemetry.readings import InventoryReported
from services.gateway.domain.event_filter import (
    RESERVATION_EVENTS,
    EventFilter,
    Subjects,
)
from services.gateway.ledger.event_writer import EventWriter, read_event
from shared.clock import utcnow
from shared.logging import log
from shared.postgres.database import Connection, Database
from shared.waiting import wait_for

M = TypeVar("M", bound=Event)

TAIL_EVENTS: Final = 1000
PAGE: Final = 500
POLL_SECONDS: Final = 1.0  # other gateways append to the same log
TRIM_SECONDS: Final = 600.0
REPEATED: Final = (tag_of(InventoryReported), tag_of(ExecutorReported))

SELECT_NAMESPACE_OF_TASK: Final = """
SELECT namespace FROM event WHERE task_id = $1 AND namespace IS NOT NULL ORDER BY cursor LIMIT 1
"""

SELECT_END: Final = "SELECT coalesce(max(cursor), 0) FROM event"

SELECT_EVENTS: Final = """
SELECT cursor, message_id, subject, type, occurred_at, task_id, experiment_id, reservation_id,
       namespace, body
FROM event
WHERE cursor > $1 AND (cardinality($2::text[]) = 0 OR type = ANY ($2))
  AND ($3::text IS NULL OR task_id = $3) AND ($4::text IS NULL OR experiment_id = $4)
  AND ($5::text IS NULL OR reservation_id = $5)
  AND ($6::text[] IS NULL OR namespace = ANY ($6)
       OR coalesce(namespace, task_id, experiment_id, reservation_id) IS NULL
       OR starts_with(type, $8) AND ($9::text[] IS NULL OR namespace = ANY ($9)))
ORDER BY cursor LIMIT $7
"""

# Of a subject that ends in this key, of what only agents and the scheduler say of nodes; what is
# repeated every 30 s is left out.
SELECT_NEWEST_OF_KEY: Final = """
SELECT cursor, message_id, subject, type, occurred_at, task_id, experiment_id, reservation_id,
       namespace, body
FROM event
WHERE reverse(split_part(reverse(subject), '.', 1)) = $1 AND ($2::bigint IS NULL OR cursor < $2)
  AND type <> ALL ($3)
  AND (starts_with(type, 'telemetry.') OR type ~ '^scheduler[.](device|drift|node)_')
  AND ($4::text[] IS NULL OR namespace = ANY ($4)
       OR coalesce(namespace, task_id, experiment_id, reservation_id) IS NULL
       OR starts_with(type, $5) AND ($6::text[] IS NULL OR namespace = ANY ($6)))
ORDER BY cursor DESC LIMIT $7
"""

SELECT_LAST_OF_EACH: Final = """
SELECT DISTINCT ON (subject) subject, body FROM event
WHERE type = $1 AND stored_at > now() - interval '1 hour' ORDER BY subject, cursor DESC
"""

DELETE_OLD: Final = """
DELETE FROM event
WHERE stored_at < $1 OR (type = ANY ($2) AND stored_at < now() - interval '1 hour')
"""


class LogEntry(Struct, frozen=True):
    """An event of the log with what it is about."""

    event: StoredEvent
    about: Subjects


@dataclass(slots=True)
class EventLog:
    """The log and its newest part in memory, which most readers read from.

    `tail` has every event after `floor`; `followers` are called with each event added to it.
    """

    database: Database
    retention_days: int
    appended: asyncio.Event = field(default_factory=asyncio.Event)
    stored_events: int = 0
    floor: int = 0
    tail: deque[LogEntry] = field(default_factory=deque)
    followers: list[Callable[[StoredEvent], Awaitable[None]]] = field(default_factory=list)
    writer: EventWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = EventWriter(self.database, self._note_stored)

    @property
    def cursor(self) -> int:
        """The newest event's."""
        return self.tail[-1].event.cursor if self.tail else self.floor

    async def open(self) -> None:
        """Find out where the log ends."""
        async with self.database.transaction() as connection:
            self.floor = await connection.fetchval(SELECT_END)

    async def follow(self) -> None:
        """Take what was appended, by whomever, into the tail, until cancelled."""
        while True:
            self.appended.clear()
            while await self._take_page() == PAGE:
                pass
            await wait_for(self.appended, POLL_SECONDS)

    async def read(
        self, after_id: int, criteria: EventFilter, limit: int
    ) -> tuple[list[StoredEvent], int]:
        """Wanted events after a cursor, and the cursor to read on after."""
        if after_id >= self.floor:
            newest = takewhile(lambda entry: entry.event.cursor > after_id, reversed(self.tail))
            passed = list(newest)[::-1][:PAGE]
            matches = [e.event for e in passed if criteria.matches(e.event.type, e.about)]
            if len(matches) > limit:
                return matches[:limit], matches[limit - 1].cursor
            return matches, passed[-1].event.cursor if passed else after_id
        end = self.cursor
        async with self.database.transaction() as connection:
            matches = [
                entry.event for entry in await _select(connection, after_id, criteria, limit)
            ]
        # What another gateway has just stored may be found before it is in this one's tail.
        last = matches[-1].cursor if matches else after_id
        return matches, last if len(matches) == limit else max(end, last)

    async def read_of_node(
        self, node_id: str, before_id: int | None, criteria: EventFilter, limit: int
    ) -> list[StoredEvent]:
        """Return what happened on a node and may be seen, newest first."""
        async with self.database.statements() as connection:
            rows: Iterable[Any] = await connection.fetch(
                SELECT_NEWEST_OF_KEY,
                node_id,
                before_id,
                list(REPEATED),
                list(criteria.readable) if criteria.readable is not None else None,
                RESERVATION_EVENTS,
                list(criteria.names_of) if criteria.names_of is not None else None,
                limit,
            )
        return [_entry(row).event for row in rows]

    async def namespace_of(self, task_id: UUID) -> str | None:
        """Return the namespace of a task, by its events; None if none has come."""
        async with self.database.statements() as connection:
            namespace: str | None = await connection.fetchval(
                SELECT_NAMESPACE_OF_TASK, str(task_id)
            )
        return namespace

    async def last_of_each(self, event: type[M]) -> list[M]:
        """The newest event of a type per subject, where that can be read."""
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_LAST_OF_EACH, tag_of(event))
        messages = (
            read_event(row["subject"], msgspec.json.decode(row["body"]), event) for row in rows
        )
        return [message for message in messages if message is not None]

    async def trim(self) -> None:
        """Delete what is past its retention, and repeated reports that newer ones replaced."""
        while True:
            async with self.database.transaction() as connection:
                oldest = utcnow() - timedelta(days=self.retention_days)
                await connection.execute(DELETE_OLD, oldest, list(REPEATED))
            await asyncio.sleep(TRIM_SECONDS)

    def _note_stored(self, count: int) -> None:
        self.stored_events += count
        self.appended.set()

    async def _take_page(self) -> int:
        async with self.database.transaction() as connection:
            entries = await _select(connection, self.cursor, EventFilter(), PAGE)
            if not entries:
                self._heed_end(await connection.fetchval(SELECT_END))
        self.tail.extend(entries)
        for entry in entries:
            for follower in self.followers:
                try:
                    await follower(entry.event)
                except Exception:  # noqa: BLE001  # a message never ends its process
                    log.exception("follower_failed", subject=entry.event.subject)
        while len(self.tail) > TAIL_EVENTS:
            self.floor = self.tail.popleft().event.cursor
        return len(entries)

    def _heed_end(self, end: int) -> None:
        """Forget what a standby had not received that is the primary now: its cursors are given
        again, and who waited for those behind them would wait for long. Trimming takes only the
        oldest.
        """
        if 0 < end < self.cursor:
            log.warning("event_log_shortened", cursor=self.cursor, end=end)
            self.tail.clear()
            self.floor = end


async def _select(
    connection: Connection, after_id: int, criteria: EventFilter, limit: int
) -> list[LogEntry]:
    rows: Iterable[Any] = await connection.fetch(
        SELECT_EVENTS,
        after_id,
        list(criteria.types),
        criteria.task_id,
        criteria.experiment_id,
        criteria.reservation_id,
        list(criteria.readable) if criteria.readable is not None else None,
        limit,
        RESERVATION_EVENTS,
        list(criteria.names_of) if criteria.names_of is not None else None,
    )
    return [_entry(row) for row in rows]


def _entry(row: Any) -> LogEntry:
    return LogEntry(
        msgspec.convert({**row, "event": msgspec.json.decode(row["body"])}, StoredEvent),
        msgspec.convert(row, Subjects),
    )
