"""The log between its table and its newest part in memory, on a real Postgres."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import subject_for
from schemas.telemetry.readings import HostFacts, InventoryReported, Source
from services.gateway.domain.event_filter import EventFilter
from services.gateway.ledger.eventlog import EventLog, RawEvent, parse
from services.gateway.ledger.migrations import MIGRATIONS
from services.gateway.live_state import LiveState
from shared.clock import utcnow
from shared.errors import PermanentError
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.postgres.database import Database
from shared.testing import eventually
from shared.waiting import cancelled
from tests.support.worlds.gateway import make_task_started

BOOT = UUID(int=7)


async def append(log: EventLog) -> None:
    event = make_task_started()
    await log.append(RawEvent(subject_for(event), encode(event), tries=1))


async def test_what_was_read_before_it_came_into_memory_is_not_read_again(
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
        await cancelled(following)
        second, _ = await log.read(cursor, EventFilter(), limit=200)
    finally:
        await database.close()

    assert [event.cursor for event in first] == [1, 2]
    assert second == []


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


async def test_a_report_that_cannot_be_read_keeps_no_gateway_from_starting(
    postgres_dsn: str,
) -> None:
    """The log keeps what it does not know, so a node's broken agent fills it with anything."""
    broken, sound = make_inventory("broken"), make_inventory("sound")
    body = msgspec.msgpack.decode(encode(broken))
    database = Database(postgres_dsn, "gateway", MIGRATIONS)
    await database.open()
    try:
        log = EventLog(database, retention_days=30)
        await log.append(RawEvent(subject_for(sound), encode(sound), tries=1))
        for changes in ({"message_id": "none"}, {"devices": 7}, {"node_id": "sound"}):
            raw = msgspec.msgpack.encode(body | {"message_id": str(new_id())} | changes)
            await log.append(RawEvent(subject_for(broken), raw, tries=1))
        await log.open()
        live = LiveState()

        await live.restore(log)
        log.floor = 0
        following = asyncio.create_task(log.follow())
        await eventually(lambda: log.cursor == 4, what="the events in memory")
        await cancelled(following)
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
def test_no_sender_puts_anything_but_its_own_events_into_the_log(body: bytes) -> None:
    with pytest.raises(PermanentError):
        parse(RawEvent(subject_for(make_task_started()), body, tries=1))


async def test_a_node_whose_clock_is_set_back_is_still_followed() -> None:
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
