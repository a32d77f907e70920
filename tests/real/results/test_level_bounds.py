"""What bounded an attempt's levels is told as fast beside many attempts as alone."""

import json
from datetime import timedelta
from typing import Final
from uuid import UUID

from services.results.migrations import MIGRATIONS
from services.results.summaries.level_bounds import POWER_REASONS, SELECT_FACTS, THERMAL_REASONS
from shared.clock import utcnow
from shared.ids import new_id
from shared.postgres.database import Connection, Database

ATTEMPTS: Final = 40
SECONDS: Final = 500
BLOCKS_PER_SAMPLE: Final = 5


async def store(connection: Connection, attempts: list[UUID]) -> None:
    """All of one GPU in one condition, as a busy one has it all day."""
    await connection.execute("INSERT INTO condition (facts) VALUES ('[[\"sw_power_cap\"]]')")
    await connection.execute(
        "INSERT INTO attempt SELECT attempt_id, attempt_id, attempt_id, 'default', 1, 'succeeded',"
        " 1, now(), now(), now(), '' FROM unnest($1::uuid[]) AS attempt_id",
        attempts,
    )
    await connection.execute(
        "INSERT INTO experiment_sample (attempt_id, device_no, observed_at, boot_id, sequence,"
        " interval_seconds, condition_no)"
        " SELECT attempt_id, 1, $2::timestamptz + second * interval '1 second', attempt_id, second,"
        " 1, condition_no FROM condition, generate_series(0, $3::int - 1) AS second,"
        " unnest($1::uuid[]) AS attempt_id ORDER BY attempt_id, second",
        attempts,
        utcnow() - timedelta(seconds=SECONDS),
        SECONDS,
    )
    await connection.execute("ANALYZE experiment_sample")
    await connection.execute("ANALYZE condition")


async def test_the_samples_of_other_attempts_are_not_read(postgres_dsn: str) -> None:
    """Each sample looked for one of its attempt among all of its condition: of forty attempts
    that took 12 s, and the page of a task had no levels.
    """
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    attempts = [new_id() for _ in range(ATTEMPTS)]
    edges = [utcnow() - timedelta(seconds=SECONDS * part / 4) for part in (5, 3, 2, 1, 0)]
    asked = (attempts[-1], edges[:-1], edges[1:], POWER_REASONS, THERMAL_REASONS)

    async with database.transaction() as connection:
        await store(connection, attempts)
        # As it plans where it takes the windows for short, which it cannot know.
        for other in ("hashjoin", "mergejoin", "memoize", "material"):
            await connection.execute(f"SET LOCAL enable_{other} = off")
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SELECT_FACTS}"
        plan = json.loads(await connection.fetchval(explained, *asked))[0]["Plan"]
        facts = await connection.fetch(SELECT_FACTS, *asked)
    await database.close()

    assert [each["power_throttled"] for each in facts] == [1.0] * 4
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < BLOCKS_PER_SAMPLE * SECONDS
