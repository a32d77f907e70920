"""What bounded an attempt's levels, by stored samples."""

from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkResult
from services.results.domain.bounds import WindowFacts, bounds_of
from shared.postgres.database import Connection

# Of each window, counted from 0. A GPU counts as slowed down where its driver gave such a reason.
SELECT_FACTS: Final = """
WITH window_of AS (
    SELECT number - 1 AS number, start_at, end_at
    FROM unnest($2::timestamptz[], $3::timestamptz[])
        WITH ORDINALITY AS given (start_at, end_at, number)),
reason AS (
    SELECT condition_no, facts::jsonb -> 0 ?| $4::text[] AS power,
           facts::jsonb -> 0 ?| $5::text[] AS heat
    FROM condition)
SELECT running, running_most, waiting, kv_cache_percent, preemptions, power_throttled,
       thermal_throttled
FROM window_of
LEFT JOIN LATERAL (
    SELECT avg(running) AS running, max(running) AS running_most, avg(waiting) AS waiting,
           avg(kv_cache_percent) AS kv_cache_percent,
           max(preemptions) - min(preemptions) AS preemptions
    FROM engine_sample
    WHERE attempt_id = $1 AND observed_at BETWEEN start_at AND end_at) AS engine ON true
LEFT JOIN LATERAL (
    SELECT avg(coalesce(power, false)::int)::float8 AS power_throttled,
           avg(coalesce(heat, false)::int)::float8 AS thermal_throttled
    FROM experiment_sample LEFT JOIN reason USING (condition_no)
    WHERE attempt_id = $1 AND observed_at BETWEEN start_at AND end_at) AS gpu ON true
ORDER BY number
"""
POWER_REASONS: Final = ("sw_power_cap", "hw_power_brake_slowdown")
THERMAL_REASONS: Final = ("sw_thermal_slowdown", "hw_thermal_slowdown")


async def with_bounds(
    connection: Connection, attempt_id: UUID, benchmark: BenchmarkResult
) -> BenchmarkResult:
    """Add to each level what bounded it, where the engine reported enough for it."""
    levels = benchmark.levels
    rows = await connection.fetch(
        SELECT_FACTS,
        attempt_id,
        [level.started_at for level in levels],
        [level.finished_at for level in levels],
        POWER_REASONS,
        THERMAL_REASONS,
    )
    bounds = bounds_of(levels, [WindowFacts(**dict(row)) for row in rows])
    bounded = (replace(level, bound=of) for level, of in zip(levels, bounds, strict=True))
    return replace(benchmark, levels=tuple(bounded))
