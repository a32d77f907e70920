"""What `upgrade --check` reads of a database, and that it changes nothing."""

from shared.postgres.database import Database
from shared.postgres.pending_migrations import Pending, Wait, migrations_of, read_pending
from shared.testing import PostgresServer, database_of

NEXT = "ALTER TABLE attempt ADD COLUMN later text; CREATE INDEX attempt_later ON attempt (later);"


async def test_pending_steps_are_told_and_not_taken(postgres_dsn: str) -> None:
    results = migrations_of("results")
    database = Database(postgres_dsn, "results", results)
    await database.open()
    await database.close()

    for _ in range(2):
        [pending], releases = await read_pending(postgres_dsn, {"results": (*results, NEXT)})

        assert (pending.version, pending.release_version) == (len(results), len(results) + 1)
        assert [(step.table, step.waiting) for step in pending.steps] == [
            ("attempt", Wait.EVERYTHING),
            ("attempt", Wait.WRITES),
        ]
        assert pending.steps[0].table_bytes > 0
        assert releases == {}


async def test_schema_of_later_release_is_named_newer(postgres_dsn: str) -> None:
    results = migrations_of("results")
    database = Database(postgres_dsn, "results", (*results, NEXT))
    await database.open()
    await database.close()

    [pending], _ = await read_pending(postgres_dsn, {"results": results})

    assert pending.is_newer


async def test_empty_database_has_nothing_to_migrate(postgres_dsn: str) -> None:
    [pending], _ = await read_pending(postgres_dsn, {"results": migrations_of("results")})

    release_version = len(migrations_of("results"))
    assert pending == Pending(schema="results", version=0, release_version=release_version)


async def test_agents_are_told_with_their_releases(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, "scheduler", migrations_of("scheduler"))
    await database.open()
    async with database.transaction() as connection:
        await connection.execute(
            "INSERT INTO node (node_id, host, removed) VALUES"
            """ ('a', '{"hostname": "a", "release": "0.1.0"}', false),"""
            """ ('b', '{"hostname": "b"}', false), ('c', '{"hostname": "c"}', true),"""
            " ('d', NULL, false)"
        )
    await database.close()

    _, releases = await read_pending(postgres_dsn, {})

    assert releases == {"a": "0.1.0", "b": None}


async def test_results_are_read_where_their_own_dsn_leads(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with database_of(postgres_server) as own_dsn:
        database = Database(own_dsn, "results", migrations_of("results"))
        await database.open()
        await database.close()

        pending, _ = await read_pending(postgres_dsn, results_dsn=own_dsn)

    versions = {schema.schema: schema.version for schema in pending}
    assert versions["results"] == len(migrations_of("results"))
    assert (versions["scheduler"], len(versions)) == (0, 4)
