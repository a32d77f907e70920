"""Every event of the stream, in Postgres, under cursors that only grow."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from faststream import AckPolicy
from faststream.nats import JStream, NatsRoute, PullSub
from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from schemas.audit import CommandRecorded
from schemas.base import PREFIX, Event, Kind, tag_of
from schemas.executor.attempts import ExecutorReported
from schemas.gateway.views import StoredEvent
from schemas.orchestrator.experiments import OrchestratorCommandRecorded
from schemas.scheduler.reservations import SchedulerCommandRecorded
from schemas.telemetry.readings import InventoryReported
from services.gateway.domain.event_filter import (
    RESERVATION_EVENTS,
    EventFilter,
    Subjects,
    subjects_of,
)
from services.gateway.ledger.audit import insert_recorded
from shared.clock import utcnow
from shared.errors import PermanentError, UnavailableError, shortened
from shared.logging import log
from shared.messaging.codec import TypedCodec, check_subject, decoder_of
from shared.messaging.routes import DurableRoute, Route, function_of
from shared.messaging.streams import EVENTS
from shared.postgres.database import Connection, Database
from shared.waiting import wait_for

M = TypeVar("M", bound=Event)

# Cursors are drawn while this is held, so that they become visible in their order.
APPEND_LOCK: Final = 0x6770657600
TAIL_EVENTS: Final = 1000
PAGE: Final = 500
POLL_SECONDS: Final = 1.0  # other gateways append to the same log
TRIM_SECONDS: Final = 600.0
REPEATED: Final = (tag_of(InventoryReported), tag_of(ExecutorReported))
RECORDED: Final[Mapping[str, type[CommandRecorded]]] = {
    tag_of(event): event for event in (SchedulerCommandRecorded, OrchestratorCommandRecorded)
}
TASK_UNKNOWN_TRIES: Final = 4  # within about six seconds

_decode: Final = decoder_of(Any)

LOCK_APPEND: Final = "SELECT pg_advisory_xact_lock($1)"

INSERT_EVENT: Final = """
INSERT INTO event (message_id, subject, type, occurred_at, task_id, experiment_id, reservation_id,
                   namespace, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (message_id) DO NOTHING
"""

SELECT_TASK: Final = """
SELECT task_id FROM event WHERE experiment_id = $1 AND task_id IS NOT NULL LIMIT 1
"""

SELECT_NAMESPACE_OF_TASK: Final = """
SELECT namespace FROM event WHERE task_id = $1 AND namespace IS NOT NULL ORDER BY cursor LIMIT 1
"""

SELECT_NAMESPACE_OF_RESERVATION: Final = """
SELECT namespace FROM event WHERE reservation_id = $1 AND namespace IS NOT NULL
ORDER BY cursor LIMIT 1
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

SELECT_LAST_OF_EACH: Final = """
SELECT DISTINCT ON (subject) subject, body FROM event
WHERE type = $1 AND stored_at > now() - interval '1 hour' ORDER BY subject, cursor DESC
"""

DELETE_OLD: Final = """
DELETE FROM event
WHERE stored_at < $1 OR (type = ANY ($2) AND stored_at < now() - interval '1 hour')
"""


class RawEvent(Struct, frozen=True):
    """A message of the stream as it came, for the first time or again."""

    subject: str
    body: bytes
    tries: int


class LogEntry(Struct, frozen=True):
    """An event of the log with what it is about."""

    event: StoredEvent
    about: Subjects


class _RawCodec(TypedCodec):
    """Hands over subject and bytes: events that this release does not know are kept as well."""

    __slots__ = ()

    @override
    async def decode(self, msg: Any) -> Any:
        raw = msg.raw_message
        return RawEvent(raw.subject, msg.body, raw.metadata.num_delivered or 1)


def parse(raw: RawEvent) -> StoredEvent:
    """An event as plain data, without a cursor yet. Raises PermanentError if it is none."""
    try:
        body = _decode(raw.body)
        plain = msgspec.json.decode(msgspec.json.encode(body))
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise PermanentError(f"{raw.subject}: {error}") from error
    if not isinstance(plain, dict):
        raise PermanentError(f"{raw.subject}: expected a mapping, found {type(plain).__name__}")
    type_ = ".".join(raw.subject.split(".")[2:4])
    if plain.get("type", type_) != type_:
        raise PermanentError(f"{raw.subject}: expected its type, found {plain['type']!r}")
    return StoredEvent(
        cursor=0,
        subject=raw.subject,
        type=type_,
        message_id=_message_id(plain, raw),
        occurred_at=_occurred_at(plain),
        event=plain,
    )


def read_event(subject: str, body: dict[str, Any], event: type[M]) -> M | None:
    """A stored event as its type; None where a sender filled it with something else."""
    try:
        found = msgspec.convert(body, event)
        check_subject(found, subject)
    except msgspec.ValidationError as error:
        log.warning("undecodable", subject=subject, error=shortened(str(error)))
        return None
    return found


def _message_id(plain: dict[str, Any], raw: RawEvent) -> UUID:
    """The event's own, else one of its content, so that a repeated one is recognized."""
    try:
        return UUID(plain["message_id"])
    except (KeyError, ValueError, AttributeError, TypeError):
        return UUID(bytes=hashlib.sha256(raw.subject.encode() + raw.body).digest()[:16])


def _occurred_at(plain: dict[str, Any]) -> datetime:
    try:
        at: datetime = msgspec.convert(plain.get("occurred_at"), datetime)
    except msgspec.ValidationError:
        return utcnow()
    return at if at.tzinfo is not None else utcnow()


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

    @property
    def cursor(self) -> int:
        """The newest event's."""
        return self.tail[-1].event.cursor if self.tail else self.floor

    def route(self) -> Route:
        """All events of the stream, whatever they are, into the log."""
        everything = f"{PREFIX}.{Kind.EVENT.value}.>"
        durable = "gateway_event_log"
        return Route(
            NatsRoute(
                function_of(self.append),
                subject=everything,
                stream=JStream(str(EVENTS.name), declare=False),
                durable=durable,
                pull_sub=PullSub(batch_size=1, timeout=1.0),
                ack_policy=AckPolicy.MANUAL,
                codec=_RawCodec(Any),
            ),
            DurableRoute(durable=durable, subjects=[everything]),
        )

    async def append(self, raw: RawEvent) -> None:
        """Store an event once. Raises PermanentError for what is none, UnavailableError."""
        event = parse(raw)
        async with self.database.transaction() as connection:
            await connection.execute(LOCK_APPEND, APPEND_LOCK)
            about = await _with_task(connection, event, raw.tries)
            about = await _with_namespace(connection, about)
            await connection.execute(
                INSERT_EVENT,
                event.message_id,
                event.subject,
                event.type,
                event.occurred_at,
                about.task_id,
                about.experiment_id,
                about.reservation_id,
                about.namespace,
                msgspec.json.encode(event.event).decode(),
            )
            if event.type in RECORDED:
                recorded = read_event(event.subject, event.event, RECORDED[event.type])
                if recorded is not None:
                    await insert_recorded(connection, recorded)
        self.stored_events += 1
        self.appended.set()

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
        self, after: int, wanted: EventFilter, limit: int
    ) -> tuple[list[StoredEvent], int]:
        """Wanted events after a cursor, and the cursor to read on after."""
        if after >= self.floor:
            newest = takewhile(lambda entry: entry.event.cursor > after, reversed(self.tail))
            passed = list(newest)[::-1][:PAGE]
            found = [e.event for e in passed if wanted.matches(e.event.type, e.about)]
            if len(found) > limit:
                return found[:limit], found[limit - 1].cursor
            return found, passed[-1].event.cursor if passed else after
        end = self.cursor
        async with self.database.transaction() as connection:
            found = [entry.event for entry in await _select(connection, after, wanted, limit)]
        # What another gateway has just stored may be found before it is in this one's tail.
        last = found[-1].cursor if found else after
        return found, last if len(found) == limit else max(end, last)

    async def namespace_of(self, task_id: UUID) -> str | None:
        """Of a task, by its events; None where none has come."""
        async with self.database.statements() as connection:
            found: str | None = await connection.fetchval(SELECT_NAMESPACE_OF_TASK, str(task_id))
        return found

    async def last_of_each(self, event: type[M]) -> list[M]:
        """The newest event of a type per subject, where that can be read."""
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_LAST_OF_EACH, tag_of(event))
        found = (
            read_event(row["subject"], msgspec.json.decode(row["body"]), event) for row in rows
        )
        return [each for each in found if each is not None]

    async def trim(self) -> None:
        """Delete what is past its retention, and repeated reports that newer ones replaced."""
        while True:
            async with self.database.transaction() as connection:
                oldest = utcnow() - timedelta(days=self.retention_days)
                await connection.execute(DELETE_OLD, oldest, list(REPEATED))
            await asyncio.sleep(TRIM_SECONDS)

    async def _take_page(self) -> int:
        async with self.database.transaction() as connection:
            entries = await _select(connection, self.cursor, EventFilter(), PAGE)
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


async def _with_task(connection: Connection, event: StoredEvent, tries: int) -> Subjects:
    """What an event is about, with its task. Raises UnavailableError while that is not known yet.

    A reservation's event names its experiment alone, whose task an earlier event has named. The
    two come from different services, so that this one may come first: it is put off then, a few
    times only, as the other may never come.
    """
    about = subjects_of(event.event)
    if about.task_id is not None or about.experiment_id is None:
        return about
    task_id = await connection.fetchval(SELECT_TASK, about.experiment_id)
    if task_id is None and tries < TASK_UNKNOWN_TRIES:
        raise UnavailableError(f"no event of experiment {about.experiment_id} has come yet")
    return replace(about, task_id=task_id)


async def _with_namespace(connection: Connection, about: Subjects) -> Subjects:
    """With the namespace that an earlier event has named for its task or reservation."""
    if about.namespace is not None:
        return about
    namespace = None
    if about.task_id is not None:
        namespace = await connection.fetchval(SELECT_NAMESPACE_OF_TASK, about.task_id)
    if namespace is None and about.reservation_id is not None:
        namespace = await connection.fetchval(SELECT_NAMESPACE_OF_RESERVATION, about.reservation_id)
    return replace(about, namespace=namespace)


async def _select(
    connection: Connection, after: int, wanted: EventFilter, limit: int
) -> list[LogEntry]:
    rows: Iterable[Any] = await connection.fetch(
        SELECT_EVENTS,
        after,
        list(wanted.types),
        wanted.task_id,
        wanted.experiment_id,
        wanted.reservation_id,
        list(wanted.readable) if wanted.readable is not None else None,
        limit,
        RESERVATION_EVENTS,
        list(wanted.names_of) if wanted.names_of is not None else None,
    )
    return [
        LogEntry(
            msgspec.convert({**row, "event": msgspec.json.decode(row["body"])}, StoredEvent),
            msgspec.convert(row, Subjects),
        )
        for row in rows
    ]
