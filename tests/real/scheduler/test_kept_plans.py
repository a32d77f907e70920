"""What is asked for at each grant is planned once; lists with filters are planned for those."""

from collections.abc import AsyncIterator

import pytest

from schemas.scheduler.reservations import ReservationState
from schemas.scheduler.views import ListReservations
from services.scheduler.ledger import change_feed
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.rows import reservation_rows
from shared.postgres.database import Connection, Database
from tests.support.kept_schema import opened

RUNS = 8  # Postgres may decide otherwise after the fifth
PLANS = "SELECT sum({kind}_plans) FROM pg_prepared_statements WHERE statement LIKE '%' || $1 || '%'"
WHOLE_READS = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'reservation'"
OLD_RESERVATIONS = """
INSERT INTO reservation (reservation_id, namespace, holder, request, state, revision, requested_at,
    wait_deadline_at, lease_ttl_seconds, ended_at)
SELECT gen_random_uuid(), 'default', '', '{}', 'released', 3, now(), now(), 30, now()
FROM generate_series(1, 5000)
"""


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    kept = Database(postgres_dsn, "scheduler", MIGRATIONS, max_connections=1, keeps_plans=True)
    async with opened(kept) as database:
        yield database


async def poll(database: Database, snapshot: str) -> None:
    async with database.statements() as connection:
        await change_feed.poll(connection, snapshot)


async def count_plans(connection: Connection, kind: str, part: str) -> int:
    return int(await connection.fetchval(PLANS.format(kind=kind), part) or 0)


async def test_repeated_poll_is_planned_once(database: Database) -> None:
    async with database.statements() as connection:
        snapshot = await connection.fetchval("SELECT pg_current_snapshot()::text")
    for _ in range(RUNS):
        await poll(database, snapshot)
    async with database.statements() as connection:
        assert await count_plans(connection, "custom", "polled AS") == 0
        assert await count_plans(connection, "generic", "polled AS") == RUNS


async def test_poll_of_a_grown_table_reads_by_index(database: Database) -> None:
    async with database.statements() as connection:
        snapshot = await connection.fetchval("SELECT pg_current_snapshot()::text")
    await poll(database, snapshot)
    async with database.statements() as connection:
        await connection.execute(OLD_RESERVATIONS)
        await connection.execute("DELETE FROM change")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        whole_reads = await connection.fetchval(WHOLE_READS)
    await poll(database, snapshot)
    async with database.statements() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        assert await connection.fetchval(WHOLE_READS) == whole_reads


async def test_list_is_planned_for_its_filters(database: Database) -> None:
    query = ListReservations(states=(ReservationState.QUEUED,))
    for _ in range(RUNS):
        async with database.transaction() as connection:
            assert await reservation_rows.find_all(connection, query, None, 10) == []
    async with database.statements() as connection:
        assert await count_plans(connection, "custom", "ORDER BY r.arrival DESC") == RUNS
        assert await connection.fetchval("SHOW plan_cache_mode") == "force_generic_plan"
