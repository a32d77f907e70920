"""A command that two schedulers are given at the same time is applied once and answered twice."""

import asyncio
from pathlib import Path

import pytest

from schemas.scheduler.reservations import RequestReservation
from services.scheduler.intake.batcher import CommandBatcher
from services.scheduler.ledger.migrations import MIGRATIONS
from shared.ids import new_id
from shared.postgres.database import Database
from tests.support.worlds.scheduler import accepted

pytestmark = pytest.mark.long

TIMES = 10


async def test_both_get_the_same_answer(postgres_dsn: str) -> None:
    """Both look, neither finds it answered, both apply it; the second one's memory is refused."""
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    try:
        batchers = [CommandBatcher(database, lambda _: None, Path()) for _ in range(2)]
        for _ in range(TIMES):
            command = RequestReservation(command_id=new_id(), reservation_id=new_id())

            replies = await asyncio.gather(*(batcher.submit(command) for batcher in batchers))

            assert accepted(replies[0]) == accepted(replies[1])
        async with database.transaction() as connection:
            assert await connection.fetchval("SELECT count(*) FROM reservation") == TIMES
            assert await connection.fetchval("SELECT count(*) FROM outbox") == TIMES
    finally:
        await database.close()
