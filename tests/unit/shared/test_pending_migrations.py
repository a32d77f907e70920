"""What waits while a database is migrated."""

import pytest

from shared.postgres.pending_migrations import MODULES, Step, Wait, migrations_of, steps_of

SIZES = {"event": 2_000_000_000, "token": 8_000}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        pytest.param("CREATE TABLE later (number int);", [], id="a new table"),
        pytest.param(
            "CREATE TABLE later (number int); CREATE INDEX later_number ON later (number);",
            [],
            id="an index of a new table",
        ),
        pytest.param(
            "ALTER TABLE event ADD COLUMN later text NOT NULL DEFAULT ''",
            [("event", Wait.EVERYTHING, 0)],
            id="a column with a constant",
        ),
        pytest.param(
            "ALTER TABLE event ADD COLUMN later text GENERATED ALWAYS AS (left(type, 3)) STORED",
            [("event", Wait.EVERYTHING, 20)],
            id="a stored column",
        ),
        pytest.param(
            "ALTER TABLE event ALTER COLUMN task_id TYPE uuid USING task_id::uuid",
            [("event", Wait.EVERYTHING, 20)],
            id="another type",
        ),
        pytest.param(
            "CREATE INDEX event_later ON event (later)",
            [("event", Wait.WRITES, 20)],
            id="an index",
        ),
        pytest.param(
            "-- UPDATE token;\nUPDATE event SET later = subject",
            [("event", Wait.WRITES_OF_ROWS, 250)],
            id="an update, beside a comment",
        ),
        pytest.param(
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$"
            "BEGIN UPDATE event SET a = 1; END $$",
            [],
            id="a function",
        ),
    ],
)
def test_step_says_what_waits_and_for_how_long(
    text: str, steps: list[tuple[str, Wait, float]]
) -> None:
    assert steps_of([text], SIZES) == tuple(
        Step(table=table, waiting=waiting, table_bytes=SIZES[table], seconds=seconds)
        for table, waiting, seconds in steps
    )


@pytest.mark.parametrize("schema", MODULES)
def test_first_migration_of_each_schema_keeps_nobody(schema: str) -> None:
    assert steps_of(migrations_of(schema)[:1], {}) == ()
