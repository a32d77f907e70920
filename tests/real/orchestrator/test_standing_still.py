"""Tasks of which nothing is under way, which go on without an event."""

import asyncio
from datetime import timedelta

from schemas.orchestrator.experiments import TaskState
from services.orchestrator.event_handlers import EventHandlers
from services.orchestrator.ledger import task_rows
from services.orchestrator.ledger.migrations import MIGRATIONS
from services.orchestrator.task_progress import Progress
from shared.ids import new_id
from shared.postgres.database import Database
from shared.testing import eventually
from tests.support.worlds.orchestrator_records import make_task

IS_WAITING = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"


async def test_deleted_task_holds_up_no_other(postgres_dsn: str) -> None:
    """It ends and is forgotten while the one before it is waited for."""
    database = Database(postgres_dsn, "orchestrator", MIGRATIONS)
    await database.open()
    pause = timedelta(seconds=1)
    progress = Progress(offer_ttl=pause, retry_pause=pause, overdue_after=pause)
    handlers = EventHandlers(database, progress, asyncio.Event(), asyncio.Event())
    tasks = [make_task(task_id=new_id(), task_name=name) for name in ("first", "second", "third")]
    try:
        async with database.transaction() as connection:
            for task in tasks:
                await task_rows.insert(connection, task)
            due = await progress.tasks_to_advance(connection)
        first, second, third = due
        async with asyncio.TaskGroup() as group, database.transaction() as other:
            await task_rows.lock(other, first)
            group.create_task(handlers.advance_due())
            async with database.statements() as observer:
                await eventually(lambda: observer.fetchval(IS_WAITING))
                await task_rows.delete(observer, second)

        async with database.transaction() as connection:
            last = await task_rows.find(connection, third)
            assert last is not None
            assert last.state is TaskState.FAILED
    finally:
        await database.close()
