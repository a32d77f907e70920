"""Whoever changes several summaries locks them in one order."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from services.results import erasure
from services.results.migrations import MIGRATIONS
from services.results.summaries import summary_rows
from shared.postgres.database import Database
from shared.testing import eventually
from tests.support.worlds.results import make_finished

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
IS_WAITING = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
LOCK = "SELECT 1 FROM summary WHERE attempt_id = $1 FOR UPDATE"


async def test_task_is_forgotten_while_samples_arrive(postgres_dsn: str) -> None:
    """A scan finds the second summary first; late samples lock the first one first."""
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    first, second = UUID(int=1), UUID(int=2)
    event = make_finished([(NOON, NOON + timedelta(minutes=1))])
    try:
        async with database.transaction() as connection:
            for attempt_id in (second, first):
                one = replace(event, attempt_id=attempt_id)
                await summary_rows.insert_attempt(connection, one, NOON)
                await summary_rows.expect_summary(connection, one, NOON)

        async def forget() -> None:
            async with database.transaction() as connection:
                await erasure.erase(connection, event.task_id, None, NOON)

        async with asyncio.TaskGroup() as tasks, database.transaction() as late:
            await late.execute(LOCK, first)
            tasks.create_task(forget())
            async with database.statements() as observer:
                await eventually(lambda: observer.fetchval(IS_WAITING))
            await late.execute(LOCK, second)

        async with database.statements() as connection:
            assert not await connection.fetchval("SELECT bool_or(pending) FROM summary")
    finally:
        await database.close()
