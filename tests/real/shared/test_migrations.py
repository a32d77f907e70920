"""A new release migrates a database with data while the release before it goes on writing."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import pytest

from services.gateway.ledger.migrations import MIGRATIONS as GATEWAY
from services.orchestrator.ledger.migrations import MIGRATIONS as ORCHESTRATOR
from services.results.migrations import MIGRATIONS as RESULTS
from services.scheduler.ledger.migrations import MIGRATIONS as SCHEDULER
from shared.errors import UnavailableError
from shared.postgres.database import Database, SchemaTooNew
from shared.testing import eventually
from shared.waiting import within

ROWS: Final = 50
IS_ONE_WAITING: Final = """
SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted)
"""
# `change` has as many rows as triggers made.
TABLES: Final = """
SELECT format('%I.%I', table_schema, table_name) AS name,
       string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) AS columns,
       pg_relation_filenode(format('%I.%I', table_schema, table_name)::regclass) AS file
FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = $1 AND table_type = 'BASE TABLE' AND table_name NOT IN ('migration', 'change')
GROUP BY table_schema, table_name
"""


@dataclass(frozen=True)
class Release:
    """The present one, as what a later one migrates: what it writes for each number, and a step
    that a later one might have.
    """

    schema: str
    migrations: Sequence[str]
    next_step: str
    writes: tuple[str, ...]
    reads: str
    start: str = "SELECT"


RELEASES: Final = (
    Release(
        "results",
        RESULTS,
        "ALTER TABLE tick ADD COLUMN later bigint;\nALTER TABLE attempt ADD COLUMN later text",
        (
            (
                "INSERT INTO device (node_id, device_uuid, device_index, name, simulated)"
                " VALUES ('a', 'GPU-' || $1::int, 0, '', true)"
            ),
            (
                "INSERT INTO tick VALUES (md5($1::int::text)::uuid, now(), md5('boot')::uuid,"
                " $1::int, 1, '{}', '{}')"
            ),
            (
                "INSERT INTO attempt VALUES (md5($1::int::text)::uuid, md5('')::uuid,"
                " md5('')::uuid, 'a', 1, 'succeeded', 1, now(), now(), now(), '')"
            ),
        ),
        "SELECT * FROM stored_sample LIMIT 1",
        start="CREATE TABLE results.tick_all PARTITION OF results.tick DEFAULT",
    ),
    Release(
        "orchestrator",
        ORCHESTRATOR,
        "ALTER TABLE task ADD COLUMN later text;\nCREATE INDEX task_later ON task (later)",
        (
            (
                "INSERT INTO task (task_id, namespace, task_name, state, created_at, record)"
                " VALUES (md5($1::int::text)::uuid, 'a', 'task-' || $1::int,"
                " 'running', now(), '{}')"
            ),
            (
                "INSERT INTO experiment VALUES (md5($1::int::text)::uuid, md5($1::int::text)::uuid,"
                " 1, 'running', 0.5, '{}')"
            ),
            (
                "INSERT INTO attempt (attempt_id, experiment_id, task_id, reservation_id,"
                " needs_renewal, requested_at, record)"
                " SELECT experiment_id, experiment_id, task_id, experiment_id, true, now(), '{}'"
                " FROM experiment"
                " WHERE experiment_id = md5($1::int::text)::uuid"
            ),
            (
                """UPDATE task SET state = 'completed', record = '{"finished_at": "2026-01-01Z"}'"""
                " WHERE task_id = md5($1::int::text)::uuid"
            ),
        ),
        "SELECT * FROM task LIMIT 1",
    ),
    Release(
        "gateway",
        GATEWAY,
        "ALTER TABLE event ADD COLUMN later text;\nUPDATE event SET later = subject",
        (
            (
                "INSERT INTO event (message_id, subject, type, occurred_at, task_id, body)"
                " VALUES (md5($1::int::text)::uuid, 'gpusteward.evt.orchestrator.task_accepted.a',"
                """ 'orchestrator.task_accepted', now(), 'a', '{"namespace":"a"}')"""
            ),
        ),
        "SELECT * FROM event LIMIT 1",
    ),
    Release(
        "scheduler",
        SCHEDULER,
        "ALTER TABLE reservation ADD COLUMN later text NOT NULL DEFAULT ''",
        (
            "INSERT INTO node (node_id) VALUES ('node-' || $1::int)",
            (
                "INSERT INTO device (node_id, uuid, index, name, simulated, health)"
                " VALUES ('node-' || $1::int, 'GPU', 0, 'GPU', true, 'ok')"
            ),
            (
                "INSERT INTO reservation (reservation_id, namespace, holder, request, state,"
                " revision, requested_at, wait_deadline_at, lease_ttl_seconds)"
                " VALUES (md5($1::int::text)::uuid, 'a', 'a', '{}', 'queued', 0, now(), now(), 30)"
            ),
            (
                "UPDATE reservation SET state = 'granted', epoch = $1::int"
                " WHERE reservation_id = md5($1::int::text)::uuid"
            ),
            (
                "INSERT INTO holding (reservation_id, device_no, epoch, cells)"
                " SELECT md5($1::int::text)::uuid, device_no, $1::int,"
                " int8multirange(int8range(device_no * 10000, device_no * 10000 + 10000))"
                " FROM device WHERE node_id = 'node-' || $1::int"
            ),
        ),
        "SELECT * FROM reservation LIMIT 1",
    ),
)


async def write(database: Database, release: Release, number: int) -> None:
    """In one transaction, and again as often as it is told that Postgres is away."""
    while True:
        with contextlib.suppress(UnavailableError):
            async with database.transaction() as connection:
                await connection.fetch(release.reads)
                for statement in release.writes:
                    await connection.execute(statement, number)
            return


@pytest.mark.parametrize("release", RELEASES, ids=[each.schema for each in RELEASES])
async def test_new_release_migrates_beside_the_former(postgres_dsn: str, release: Release) -> None:
    old = Database(postgres_dsn, release.schema, release.migrations)
    new = Database(postgres_dsn, release.schema, (*release.migrations, release.next_step))
    number = ROWS
    async with contextlib.AsyncExitStack() as stack:
        raw = await stack.enter_async_context(asyncpg.create_pool(postgres_dsn, min_size=1))
        await old.open()
        stack.push_async_callback(old.close)
        stack.push_async_callback(new.close)
        async with old.transaction() as connection:
            await connection.execute(release.start)
        for filled in range(ROWS):
            await write(old, release, filled)
        tables = {row["name"]: row for row in await raw.fetch(TABLES, release.schema)}
        before = {name: await contents(raw, row) for name, row in tables.items()}

        async with asyncio.TaskGroup() as tasks, within(100):
            async with raw.acquire() as report, report.transaction():
                for name in tables:
                    await report.fetch(f"SELECT FROM {name}")
                opening = tasks.create_task(new.open())  # waits for the report
                await eventually(lambda: raw.fetchval(IS_ONE_WAITING), within_seconds=60)
                for _ in range(3):  # and nobody for it
                    await write(old, release, number)
                    number += 1
                assert not opening.done()
            while not opening.done():
                await write(old, release, number)
                number += 1
        for _ in range(3):
            await write(old, release, number)
            number += 1

        after = {name: await contents(raw, row) for name, row in tables.items()}
        files = {row["name"]: row["file"] for row in await raw.fetch(TABLES, release.schema)}
    assert all(before[name] <= after[name] for name in tables)
    assert {len(after[name]) - len(before[name]) for name in tables} == {0, number - ROWS}
    assert files == {name: row["file"] for name, row in tables.items()}  # none is written anew


async def test_simultaneous_starts_migrate_once(
    postgres_dsn: str,
) -> None:
    instances = [Database(postgres_dsn, "results", RESULTS) for _ in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        for each in instances:
            stack.push_async_callback(each.close)
        await asyncio.gather(*(each.open() for each in instances))
        versions = await instances[0].pool.fetch("SELECT version FROM migration ORDER BY version")

    assert [row["version"] for row in versions] == [*range(1, len(RESULTS) + 1)]


async def contents(raw: Any, table: Any) -> set[str]:
    """The rows of a table in the columns that the earlier release knew."""
    told = f"SELECT ROW({table['columns']})::text AS told FROM {table['name']}"
    return {row["told"] for row in await raw.fetch(told)}


async def test_schema_of_later_release_is_not_touched(postgres_dsn: str) -> None:
    later = Database(postgres_dsn, "results", (*RESULTS, "CREATE TABLE later (number int)"))
    await later.open()
    await later.close()

    known = len(RESULTS)
    said = f"has version {known + 1}, this release knows versions up to {known}"
    with pytest.raises(SchemaTooNew, match=said):
        await Database(postgres_dsn, "results", RESULTS).open()
