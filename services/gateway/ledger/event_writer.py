"""How events get into the log: those that come together are stored together, in their order.

While one transaction is under way the next events gather, so that a burst takes a few statements
for each hundred instead of a transaction for each.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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
from schemas.gateway.views import StoredEvent
from schemas.orchestrator.experiments import OrchestratorCommandRecorded
from schemas.scheduler.reservations import SchedulerCommandRecorded
from services.gateway.domain.event_filter import Subjects, subjects_of
from services.gateway.ledger.audit import insert_recorded
from shared.clock import utcnow
from shared.errors import PermanentError, UnavailableError, shorten
from shared.logging import log
from shared.messaging.codec import TypedCodec, check_subject, decoder_of
from shared.messaging.routes import DurableRoute, Route, function_of
from shared.messaging.streams import EVENTS
from shared.postgres.database import Connection, Database

M = TypeVar("M", bound=Event)

# Cursors are drawn while this is held, so that they become visible in their order.
APPEND_LOCK: Final = 0x6770657600
MAX_BATCH: Final = 100
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

SELECT_TASKS: Final = """
SELECT DISTINCT ON (experiment_id) experiment_id AS id, task_id AS value FROM event
WHERE experiment_id = ANY ($1) AND task_id IS NOT NULL ORDER BY experiment_id, cursor
"""

SELECT_NAMESPACES_OF_TASKS: Final = """
SELECT DISTINCT ON (task_id) task_id AS id, namespace AS value FROM event
WHERE task_id = ANY ($1) AND namespace IS NOT NULL ORDER BY task_id, cursor
"""

SELECT_NAMESPACES_OF_RESERVATIONS: Final = """
SELECT DISTINCT ON (reservation_id) reservation_id AS id, namespace AS value FROM event
WHERE reservation_id = ANY ($1) AND namespace IS NOT NULL ORDER BY reservation_id, cursor
"""


class RawEvent(Struct, frozen=True):
    """A message of the stream as it came, for the first time or again."""

    subject: str
    body: bytes
    tries: int
    sequence: int = 0  # in the stream


class _RawCodec(TypedCodec):
    """Hands over subject and bytes: events that this release does not know are kept as well."""

    __slots__ = ()

    @override
    async def decode(self, msg: Any) -> Any:
        raw = msg.raw_message
        metadata = raw.metadata
        return RawEvent(
            raw.subject, msg.body, metadata.num_delivered or 1, metadata.sequence.stream
        )


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
        occurred_at=_time_of(plain),
        event=plain,
    )


def read_event(subject: str, body: dict[str, Any], event: type[M]) -> M | None:
    """A stored event as its type; None where a sender filled it with something else."""
    try:
        message = msgspec.convert(body, event)
        check_subject(message, subject)
    except msgspec.ValidationError as error:
        log.warning("undecodable", subject=subject, error=shorten(str(error)))
        return None
    return message


def _message_id(plain: dict[str, Any], raw: RawEvent) -> UUID:
    """The event's own, else one of its content, so that a repeated one is recognized."""
    try:
        return UUID(plain["message_id"])
    except (KeyError, ValueError, AttributeError, TypeError):
        return UUID(bytes=hashlib.sha256(raw.subject.encode() + raw.body).digest()[:16])


def _time_of(plain: dict[str, Any]) -> datetime:
    try:
        at: datetime = msgspec.convert(plain.get("occurred_at"), datetime)
    except msgspec.ValidationError:
        return utcnow()
    return at if at.tzinfo is not None else utcnow()


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """An event that waits to be stored, and who waits for that."""

    raw: RawEvent
    event: StoredEvent
    stored: "asyncio.Future[None]"


@dataclass(slots=True)
class EventWriter:
    """Stores every event once. `on_stored` is called with how many are new, after the commit."""

    database: Database
    on_stored: Callable[[int], None]
    _pending: list[_Pending] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def route(self) -> Route:
        """Return the route by which all events of the stream come into the log."""
        everything = f"{PREFIX}.{Kind.EVENT.value}.>"
        durable = "gateway_event_log"
        return Route(
            NatsRoute(
                function_of(self.append),
                subject=everything,
                stream=JStream(str(EVENTS.name), declare=False),
                durable=durable,
                pull_sub=PullSub(batch_size=MAX_BATCH, timeout=1.0),
                max_workers=MAX_BATCH,
                ack_policy=AckPolicy.MANUAL,
                codec=_RawCodec(Any),
            ),
            DurableRoute(durable=durable, subjects=[everything]),
        )

    async def append(self, raw: RawEvent) -> None:
        """Store an event once. Raises PermanentError for what is none, UnavailableError."""
        mine = _Pending(raw, parse(raw), asyncio.get_running_loop().create_future())
        self._pending.append(mine)
        try:
            # Whoever gets the turn stores what has gathered; the others find theirs stored.
            async with self._turn:
                while not mine.stored.done():
                    await self._store(self._pending[:MAX_BATCH])
            await mine.stored
        finally:
            if mine in self._pending:
                self._pending.remove(mine)

    async def _store(self, batch: Sequence[_Pending]) -> None:
        try:
            await self._commit(batch)
        except Exception as error:  # noqa: BLE001  # whoever waits for it gets it
            if len(batch) > 1 and not isinstance(error, UnavailableError):
                for pending in batch:  # one that cannot be stored is no other's failure
                    await self._store([pending])
                return
            for pending in batch:
                self._end(pending, error)

    async def _commit(self, batch: Sequence[_Pending]) -> None:
        ordered = sorted(batch, key=lambda pending: pending.raw.sequence)
        async with self.database.transaction() as connection:
            await connection.execute(LOCK_APPEND, APPEND_LOCK)
            subjects = [subjects_of(pending.event.event) for pending in ordered]
            subjects = await _with_tasks(connection, subjects)
            early = {
                pending
                for pending, about in zip(ordered, subjects, strict=True)
                if about.task_id is None
                and about.experiment_id is not None
                and pending.raw.tries < TASK_UNKNOWN_TRIES
            }
            subjects = await _with_namespaces(connection, subjects)
            entries = [
                (pending.event, about)
                for pending, about in zip(ordered, subjects, strict=True)
                if pending not in early
            ]
            await connection.executemany(INSERT_EVENT, [_row(*entry) for entry in entries])
            for event, _ in entries:
                if event.type in RECORDED:
                    recorded = read_event(event.subject, event.event, RECORDED[event.type])
                    if recorded is not None:
                        await insert_recorded(connection, recorded)
        for pending in ordered:
            self._end(pending, _early(pending) if pending in early else None)
        self.on_stored(len(entries))

    def _end(self, pending: _Pending, error: Exception | None) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
        if pending.stored.done():
            return
        if error is None:
            pending.stored.set_result(None)
        else:
            pending.stored.set_exception(error)


def _early(pending: _Pending) -> UnavailableError:
    """Return why an event is put off.

    A reservation's event names its experiment alone, whose task an earlier event has named. The two
    come from different services, so that this one may come first: it is put off then, a few times
    only, as the other may never come.
    """
    experiment_id = subjects_of(pending.event.event).experiment_id
    return UnavailableError(f"no event of experiment {experiment_id} has come yet")


def _row(event: StoredEvent, about: Subjects) -> tuple[object, ...]:
    return (
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


async def _with_tasks(connection: Connection, subjects: Sequence[Subjects]) -> list[Subjects]:
    """Add the task of each experiment that an event names, in the log or in this batch."""
    tasks: dict[str | None, str | None] = {
        about.experiment_id: about.task_id
        for about in subjects
        if about.experiment_id is not None and about.task_id is not None
    }
    tasks |= await _values(
        connection,
        SELECT_TASKS,
        (about.experiment_id for about in subjects if about.task_id is None),
    )
    return [
        about
        if about.task_id is not None
        else replace(about, task_id=tasks.get(about.experiment_id))
        for about in subjects
    ]


async def _with_namespaces(connection: Connection, subjects: Sequence[Subjects]) -> list[Subjects]:
    """Add the namespace that an earlier event has named for a task or a reservation."""
    sources = [about for about in subjects if about.namespace is not None]
    unnamed = [about for about in subjects if about.namespace is None]
    of_tasks = {about.task_id: about.namespace for about in reversed(sources)}
    of_tasks |= await _values(
        connection, SELECT_NAMESPACES_OF_TASKS, (about.task_id for about in unnamed)
    )
    of_reservations = {about.reservation_id: about.namespace for about in reversed(sources)}
    of_reservations |= await _values(
        connection, SELECT_NAMESPACES_OF_RESERVATIONS, (about.reservation_id for about in unnamed)
    )

    def namespace_of(about: Subjects) -> str | None:
        of_task = of_tasks.get(about.task_id) if about.task_id is not None else None
        if of_task is not None or about.reservation_id is None:
            return of_task
        return of_reservations.get(about.reservation_id)

    return [
        about if about.namespace is not None else replace(about, namespace=namespace_of(about))
        for about in subjects
    ]


async def _values(
    connection: Connection, query: str, ids: Iterable[str | None]
) -> dict[str | None, str | None]:
    """Return the value of each id that has one; asks nothing without ids."""
    texts = sorted({text for text in ids if text is not None})
    if not texts:
        return {}
    return {row["id"]: row["value"] for row in await connection.fetch(query, texts)}
