"""The log between its table and its newest part in memory, on a real Postgres."""

import asyncio
import secrets
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import subject_for
from schemas.gateway.views import StoredEvent
from schemas.scheduler.nodes import NodeAdmitted
from schemas.telemetry.readings import HostFacts, InventoryReported, Source
from services.gateway.domain.event_filter import EventFilter
from services.gateway.ledger.event_writer import RawEvent, parse
from services.gateway.ledger.eventlog import EventLog
from services.gateway.ledger.migrations import MIGRATIONS
from services.gateway.live_state import LiveState
from shared.clock import utcnow
from shared.errors import PermanentError, UnavailableError
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.postgres.database import Database
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.worlds.gateway import make_queued, make_task_started

BOOT = UUID(int=7)


async def append(log: EventLog) -> None:
    event = make_task_started()
    await log.writer.append(RawEvent(subject_for(event), encode(event), tries=1))


async def test_event_read_from_disk_is_not_repeated(
    postgres_dsn: str,
) -> None:
    """An event that another gateway has stored is in the table first. Who reads from far back finds
    it there, and must not find it once more in memory.
    """
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    try:
        log = EventLog(database, retention_days=30)
        await append(log)
        await log.open()
        await append(log)

        first, cursor = await log.read(0, EventFilter(), limit=200)
        following = asyncio.create_task(log.follow())
        await eventually(lambda: log.cursor == 2, what="the event in memory")
        await cancel_and_wait(following)
        second, _ = await log.read(cursor, EventFilter(), limit=200)
    finally:
        await database.close()

    assert [event.cursor for event in first] == [1, 2]
    assert second == []


async def test_events_are_followed_after_cursors_were_lost(postgres_dsn: str) -> None:
    """As where a standby was promoted that had not received the newest ones."""
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    log, followed = EventLog(database, retention_days=30), list[int]()

    async def note(event: StoredEvent) -> None:
        followed.append(event.cursor or 0)

    log.followers.append(note)
    following = asyncio.create_task(log.follow())
    try:
        for _ in range(4):
            await append(log)
        await eventually(lambda: log.cursor == 4, what="the events in memory")
        async with database.transaction() as connection:
            await connection.execute("DELETE FROM event WHERE cursor > 2")
            await connection.execute("SELECT setval('event_cursor_seq', 2)")
        await eventually(lambda: log.cursor == 2, what="the loss to be noticed")
        await append(log)
        await eventually(lambda: log.cursor == 3, what="the next event")
    finally:
        await cancel_and_wait(following)
        await database.close()

    assert followed == [1, 2, 3, 4, 3]


async def test_events_that_come_together_are_stored_in_order(
    postgres_dsn: str,
) -> None:
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    started = [make_task_started() for _ in range(40)]
    early = make_queued(holder=f"experiment/{new_id()}")
    numbered = list(enumerate((*started, started[0], early)))
    log = EventLog(database, retention_days=30)
    try:
        results = await asyncio.gather(
            *(
                log.writer.append(RawEvent(subject_for(event), encode(event), 1, number))
                for number, event in reversed(numbered)
            ),
            return_exceptions=True,
        )
        events, _ = await log.read(-1, EventFilter(), limit=200)
    finally:
        await database.close()

    assert [type(result) for result in results if result is not None] == [UnavailableError]
    assert [event.message_id for event in events] == [event.message_id for event in started]


async def test_event_that_cannot_be_stored_is_no_others_failure(
    postgres_dsn: str,
) -> None:
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    sound = make_task_started()
    bodies = [encode(replace(sound, message_id=new_id())) for _ in range(5)]
    too_long = {"message_id": str(new_id()), "task_id": secrets.token_hex(10_000)}
    bodies.insert(2, msgspec.msgpack.encode(too_long))
    log = EventLog(database, retention_days=30)
    try:
        results = await asyncio.gather(
            *(log.writer.append(RawEvent(subject_for(sound), body, tries=1)) for body in bodies),
            return_exceptions=True,
        )
        events, _ = await log.read(-1, EventFilter(), limit=200)
    finally:
        await database.close()

    assert [type(result) for result in results if result is not None] == [PermanentError]
    assert len(events) == 5


async def test_events_of_a_node_come_newest_first(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    log = EventLog(database, retention_days=30)
    happened = [
        NodeAdmitted(message_id=new_id(), occurred_at=utcnow(), revision=1, node_id=node)
        for node in ("alpha", "beta", "alpha", "alpha")
    ]
    try:
        for event in (*happened, make_inventory("alpha"), make_task_started()):
            await log.writer.append(RawEvent(subject_for(event), encode(event), tries=1))
        newest = await log.read_of_node("alpha", None, EventFilter(), limit=2)
        older = await log.read_of_node("alpha", newest[-1].cursor, EventFilter(), limit=2)
    finally:
        await database.close()

    assert [event.message_id for event in (*newest, *older)] == [
        happened[index].message_id for index in (3, 2, 0)
    ]


def make_inventory(node_id: str, **changes: Any) -> InventoryReported:
    return replace(
        InventoryReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=1,
            node_id=node_id,
            boot_id=BOOT,
            source=Source.SIMULATED,
            interval_seconds=1.0,
            host=HostFacts(hostname=node_id),
            devices=(),
        ),
        **changes,
    )


async def test_unreadable_report_does_not_stop_gateway(
    postgres_dsn: str,
) -> None:
    """The log keeps what it does not know, so a node's broken agent fills it with anything."""
    broken, sound = make_inventory("broken"), make_inventory("sound")
    body = msgspec.msgpack.decode(encode(broken))
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    try:
        log = EventLog(database, retention_days=30)
        await log.writer.append(RawEvent(subject_for(sound), encode(sound), tries=1))
        for changes in ({"message_id": "none"}, {"devices": 7}, {"node_id": "sound"}):
            raw = msgspec.msgpack.encode(body | {"message_id": str(new_id())} | changes)
            await log.writer.append(RawEvent(subject_for(broken), raw, tries=1))
        await log.open()
        live = LiveState()

        await live.restore(log)
        log.floor = 0
        following = asyncio.create_task(log.follow())
        await eventually(lambda: log.cursor == 4, what="the events in memory")
        await cancel_and_wait(following)
    finally:
        await database.close()

    assert live.inventories == {"sound": sound}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(encode(make_inventory("a")), id="of another type"),
        pytest.param(b"\x81\xa1a" * 100_000 + b"\x00", id="nested too deeply"),
        pytest.param(b"", id="empty"),
    ],
)
def test_log_takes_only_events_of_their_sender(body: bytes) -> None:
    with pytest.raises(PermanentError):
        parse(RawEvent(subject_for(make_task_started()), body, tries=1))


async def test_node_with_clock_set_back_is_followed() -> None:
    live = LiveState()
    before = make_inventory("a", revision=1)
    an_hour_back = make_inventory("a", revision=2, occurred_at=utcnow() - timedelta(hours=1))
    restarted = replace(before, boot_id=new_id(), occurred_at=utcnow() - timedelta(hours=2))

    await live.on_inventory(before)
    await live.on_inventory(an_hour_back)
    await live.on_inventory(before)  # again, late
    followed = live.inventories["a"]
    await live.on_inventory(restarted)

    assert followed == an_hour_back
    assert live.inventories["a"] == restarted
