"""The log between its table and its newest part in memory, on a real Postgres."""

import asyncio

from schemas.base import subject_for
from services.gateway.domain.event_filter import EventFilter
from services.gateway.ledger.eventlog import EventLog, RawEvent
from services.gateway.ledger.migrations import MIGRATIONS
from shared.messaging.codec import encode
from shared.postgres.database import Database
from shared.testing import eventually
from shared.waiting import cancelled
from tests.support.worlds.gateway import make_task_started


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
