"""Every event of the stream, in Postgres, under cursors that only grow."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from faststream import AckPolicy
from faststream.nats import JStream, NatsRoute, PullSub
from msgspec import Struct
from typing_extensions import override

from schemas.base import PREFIX, Kind, tag_of
from schemas.executor import ExecutorReported
from schemas.gateway import StoredEvent
from schemas.telemetry import InventoryReported
from shared.clock import utcnow
from shared.codec import TypedCodec
from shared.database import Connection, Database
from shared.errors import PermanentError
from shared.routes import DurableRoute, Route
from shared.streams import EVENTS

# Cursors are drawn while this is held, so that they become visible in their order.
APPEND_LOCK: Final = 0x6770657600
TAIL_EVENTS: Final = 1000
PAGE: Final = 500
LOOK_SECONDS: Final = 1.0  # other gateways append to the same log
TRIM_SECONDS: Final = 600.0
REPEATED: Final = (tag_of(InventoryReported), tag_of(ExecutorReported))


class RawEvent(Struct, frozen=True):
    """A message of the stream as it came."""

    subject: str
    body: bytes


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events a client wants; empty wants all."""

    types: tuple[str, ...] = ()
    task_id: str | None = None
    experiment_id: str | None = None

    def matches(self, type_: str, body: dict[str, Any]) -> bool:
        """Whether an event of this type and content is wanted."""
        return (
            (not self.types or type_ in self.types)
            and (self.task_id is None or body.get("task_id") == self.task_id)
            and (self.experiment_id is None or body.get("experiment_id") == self.experiment_id)
        )


class _RawCodec(TypedCodec):
    """Hands over subject and bytes: events that this release does not know are kept as well."""

    __slots__ = ()

    @override
    async def decode(self, msg: Any) -> Any:
        return RawEvent(msg.raw_message.subject, msg.body)


def parse(raw: RawEvent) -> StoredEvent:
    """An event as plain data, without a cursor yet. Raises PermanentError if it is none."""
    try:
        body = msgspec.msgpack.decode(raw.body)
        plain = msgspec.json.decode(msgspec.json.encode(body))
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise PermanentError(f"{raw.subject}: {error}") from error
    if not isinstance(plain, dict):
        raise PermanentError(f"{raw.subject}: expected a mapping, found {type(plain).__name__}")
    return StoredEvent(
        cursor=0,
        subject=raw.subject,
        type=str(plain.get("type") or ".".join(raw.subject.split(".")[2:4])),
        message_id=_message_id(plain, raw),
        occurred_at=_occurred_at(plain),
        event=plain,
    )


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

    `tail` has every event after `floor`. `followers` hear each event that is new to the tail.
    """

    database: Database
    retention_days: int
    appended: asyncio.Event = field(default_factory=asyncio.Event)
    stored_events: int = 0
    floor: int = 0
    tail: deque[StoredEvent] = field(default_factory=deque)
    followers: list[Callable[[StoredEvent], Awaitable[None]]] = field(default_factory=list)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cursor(self) -> int:
        """The newest event's."""
        return self.tail[-1].cursor if self.tail else self.floor

    def route(self) -> Route:
        """All events of the stream, whatever they are, into the log."""
        everything = f"{PREFIX}.{Kind.EVENT.value}.>"
        durable = "gateway_event_log"
        return Route(
            NatsRoute(
                self.append,
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
        """Keep an event once. Raises PermanentError for what is none."""
        event = parse(raw)
        async with self.database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", APPEND_LOCK)
            await _insert(connection, event)
        self.stored_events += 1
        self.appended.set()

    async def open(self) -> None:
        """Find out where the log ends."""
        async with self.database.transaction() as connection:
            self.floor = await connection.fetchval("SELECT coalesce(max(cursor), 0) FROM event")

    async def follow(self) -> None:
        """Take what was appended, by whomever, into the tail, until cancelled."""
        while True:
            self.appended.clear()
            while await self._take_page() == PAGE:
                pass
            try:
                await asyncio.wait_for(self.appended.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    async def read(
        self, after: int, wanted: EventFilter, limit: int
    ) -> tuple[list[StoredEvent], int]:
        """Wanted events after a cursor, and how far was looked for them."""
        if after >= self.floor:
            passed = [event for event in self.tail if event.cursor > after][:PAGE]
            found = [event for event in passed if wanted.matches(event.type, event.event)]
            if len(found) > limit:
                return found[:limit], found[limit - 1].cursor
            return found, passed[-1].cursor if passed else after
        end = self.cursor
        async with self.database.transaction() as connection:
            found = await _select(connection, after, wanted, limit)
        return found, found[-1].cursor if len(found) == limit else max(end, after)

    async def grown(self, after: int) -> None:
        """Wait until there are events after a cursor."""
        while self.cursor <= after:
            await self._grown.wait()

    async def last_of_each(self, type_: str) -> list[dict[str, Any]]:
        """The newest event of a type per subject."""
        async with self.database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT DISTINCT ON (subject) body FROM event WHERE type = $1"
                " AND stored_at > now() - interval '1 hour' ORDER BY subject, cursor DESC",
                type_,
            )
        return [msgspec.json.decode(row["body"]) for row in rows]

    async def trim(self) -> None:
        """Delete what is past its retention, and repeated reports that newer ones replaced."""
        while True:
            async with self.database.transaction() as connection:
                await connection.execute(
                    "DELETE FROM event WHERE stored_at < $1"
                    " OR (type = ANY ($2) AND stored_at < now() - interval '1 hour')",
                    utcnow() - timedelta(days=self.retention_days),
                    list(REPEATED),
                )
            await asyncio.sleep(TRIM_SECONDS)

    async def _take_page(self) -> int:
        async with self.database.transaction() as connection:
            events = await _select(connection, self.cursor, EventFilter(), PAGE)
        self.tail.extend(events)
        for event in events:
            for follower in self.followers:
                await follower(event)
        while len(self.tail) > TAIL_EVENTS:
            self.floor = self.tail.popleft().cursor
        if events:
            grown, self._grown = self._grown, asyncio.Event()
            grown.set()
        return len(events)


async def _insert(connection: Connection, event: StoredEvent) -> None:
    await connection.execute(
        "INSERT INTO event (message_id, subject, type, occurred_at, task_id, experiment_id, body)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (message_id) DO NOTHING",
        event.message_id,
        event.subject,
        event.type.replace("\0", ""),
        event.occurred_at,
        _text(event.event.get("task_id")),
        _text(event.event.get("experiment_id")),
        msgspec.json.encode(event.event).decode(),
    )


def _text(value: object) -> str | None:
    return value.replace("\0", "") if isinstance(value, str) else None


async def _select(
    connection: Connection, after: int, wanted: EventFilter, limit: int
) -> list[StoredEvent]:
    rows: Iterable[Any] = await connection.fetch(
        "SELECT cursor, message_id, subject, type, occurred_at, body FROM event WHERE cursor > $1"
        " AND (cardinality($2::text[]) = 0 OR type = ANY ($2))"
        " AND ($3::text IS NULL OR task_id = $3) AND ($4::text IS NULL OR experiment_id = $4)"
        " ORDER BY cursor LIMIT $5",
        after,
        list(wanted.types),
        wanted.task_id,
        wanted.experiment_id,
        limit,
    )
    return [
        StoredEvent(
            cursor=row["cursor"],
            message_id=row["message_id"],
            subject=row["subject"],
            type=row["type"],
            occurred_at=row["occurred_at"],
            event=msgspec.json.decode(row["body"]),
        )
        for row in rows
    ]
