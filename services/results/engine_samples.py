"""Samples of attempts' engines: stored once, and shown as history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.engine_samples import EngineReading, EngineSampled
from schemas.results.engine_metrics import (
    EngineMetric,
    EngineSampleList,
    EngineSeriesView,
    GetEngineSeries,
    ListEngineSamples,
)
from schemas.results.series import SeriesPoint
from services.results.domain.rollup import MAX_ANSWER_POINTS, SMALLEST_BUCKET
from services.results.erasure import lock_task
from shared.messaging.bus import Route, query_route
from shared.messaging.paging import cursor_at, place_at
from shared.postgres.database import Connection, Database

VALUES: Final = EngineReading.__struct_fields__
MAX_POINTS: Final = MAX_ANSWER_POINTS // len(EngineMetric)

# Nothing of what was deleted, however late it comes.
UPSERT_RUN: Final = """
INSERT INTO engine_run (attempt_id, experiment_id, task_id, epoch, began_at, engine)
SELECT $1, $2, $3, $4, $5, $6
WHERE NOT EXISTS (SELECT FROM deleted WHERE subject_id IN ($2, $3))
ON CONFLICT (attempt_id) DO UPDATE SET engine = coalesce(engine_run.engine, excluded.engine)
"""

INSERT_SAMPLE: Final = f"""
INSERT INTO engine_sample (attempt_id, sequence, observed_at, phase, {", ".join(VALUES)})
SELECT $1, $2, $3, $4, {", ".join(f"${number + 5}" for number in range(len(VALUES)))}
FROM engine_run WHERE attempt_id = $1
ON CONFLICT DO NOTHING
"""

SELECT_RUN: Final = """
SELECT attempt_id, engine FROM engine_run WHERE experiment_id = $1
ORDER BY epoch DESC, began_at DESC LIMIT 1
"""

SELECT_SPAN: Final = """
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM engine_sample WHERE attempt_id = $1
  AND ($2::timestamptz IS NULL OR observed_at >= $2)
  AND ($3::timestamptz IS NULL OR observed_at < $3)
"""

# Of counters what they gained since the sample before; one that fell is another engine's.
SELECT_BUCKETS: Final = """
WITH gained AS (
    SELECT observed_at, running, waiting, kv_cache_percent, accept_length,
           extract(epoch FROM observed_at - lag(observed_at) OVER by_number) AS seconds,
           preemptions - lag(preemptions) OVER by_number AS preemptions,
           prefix_queried_tokens - lag(prefix_queried_tokens) OVER by_number AS queried,
           prefix_hit_tokens - lag(prefix_hit_tokens) OVER by_number AS hits,
           prompt_tokens - lag(prompt_tokens) OVER by_number AS prompt_tokens,
           generation_tokens - lag(generation_tokens) OVER by_number AS generation_tokens
    FROM engine_sample WHERE attempt_id = $1 WINDOW by_number AS (ORDER BY sequence))
SELECT metric, date_bin($2, observed_at, $3) AS at,
       min(value) AS min, max(value) AS max, avg(value) AS mean
FROM gained CROSS JOIN LATERAL (VALUES
    ('running', running),
    ('waiting', waiting),
    ('kv_cache_percent', kv_cache_percent),
    ('accept_length', accept_length),
    ('prefix_hit_percent', CASE WHEN queried > 0 THEN greatest(0, 100 * hits / queried) END),
    ('preemptions_per_s', CASE WHEN preemptions >= 0 AND seconds > 0
        THEN preemptions / seconds END),
    ('prompt_tokens_per_s', CASE WHEN prompt_tokens >= 0 AND seconds > 0
        THEN prompt_tokens / seconds END),
    ('generation_tokens_per_s', CASE WHEN generation_tokens >= 0 AND seconds > 0
        THEN generation_tokens / seconds END)) AS named (metric, value)
WHERE value IS NOT NULL AND observed_at >= $3 AND observed_at < $4
GROUP BY metric, at ORDER BY metric, at
"""

SELECT_PAGE: Final = f"""
SELECT sequence, (extract(epoch FROM observed_at) * 1000000)::bigint AS observed_at_us, phase,
       {", ".join(VALUES)}
FROM engine_sample WHERE attempt_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
"""


class EngineSamplePlace(Struct, frozen=True, array_like=True, tag="engine_sample"):
    """By number, of one attempt."""

    attempt_id: UUID
    sequence: int


@dataclass(frozen=True, slots=True)
class EngineSamples:
    database: Database

    async def store(self, batch: Sequence[EngineSampled]) -> None:
        """Store a batch; samples that are stored already stay. Raises UnavailableError."""
        runs = {
            (sample.task_id, sample.attempt_id, sample.engine): sample for sample in reversed(batch)
        }
        async with self.database.transaction() as connection:
            # In one order everywhere, as batches come beside each other.
            for task_id in sorted({sample.task_id for sample in batch}):
                await lock_task(connection, task_id)
            for first in runs.values():
                await connection.execute(
                    UPSERT_RUN,
                    first.attempt_id,
                    first.experiment_id,
                    first.task_id,
                    first.epoch,
                    first.observed_at,
                    first.engine,
                )
            await connection.executemany(
                INSERT_SAMPLE,
                [
                    (
                        *(
                            sample.attempt_id,
                            sample.sequence,
                            sample.observed_at,
                            sample.phase.value,
                        ),
                        *(getattr(sample.reading, name) for name in VALUES),
                    )
                    for sample in batch
                ],
            )

    async def series(self, query: GetEngineSeries) -> EngineSeriesView:
        """Return the series of an experiment; empty for one without samples."""
        async with self.database.transaction() as connection:
            run = await connection.fetchrow(SELECT_RUN, query.experiment_id)
            if run is None:
                return EngineSeriesView(experiment_id=query.experiment_id)
            view = EngineSeriesView(experiment_id=query.experiment_id, **dict(run))
            return await _with_series(connection, view, query)

    async def list(self, query: ListEngineSamples) -> EngineSampleList:
        """List samples; all pages show the same attempt."""
        place = place_at(query.cursor, EngineSamplePlace)
        async with self.database.transaction() as connection:
            run = await connection.fetchrow(SELECT_RUN, query.experiment_id)
            if run is None:
                return EngineSampleList()
            place = place or EngineSamplePlace(run["attempt_id"], -1)
            rows = await connection.fetch(
                SELECT_PAGE, place.attempt_id, place.sequence, query.limit + 1
            )
        page = rows[: query.limit]
        last = EngineSamplePlace(place.attempt_id, page[-1]["sequence"]) if page else place
        return EngineSampleList(
            attempt_id=place.attempt_id,
            engine=run["engine"],
            next_cursor=cursor_at(last) if len(rows) > len(page) else None,
            **{
                name: tuple(row[name] for row in page)
                for name in ("sequence", "observed_at_us", "phase", *VALUES)
            },
        )


async def _with_series(
    connection: Connection, view: EngineSeriesView, query: GetEngineSeries
) -> EngineSeriesView:
    [span] = await connection.fetch(SELECT_SPAN, view.attempt_id, query.start_at, query.end_at)
    if span["first_at"] is None:
        return view
    end_at = span["last_at"] + SMALLEST_BUCKET
    points = min(query.points, MAX_POINTS)
    bucket = max((end_at - span["first_at"]) / points, SMALLEST_BUCKET)
    while span["first_at"] + bucket * points < end_at:
        bucket += bucket.resolution
    rows = await connection.fetch(SELECT_BUCKETS, view.attempt_id, bucket, span["first_at"], end_at)
    series: dict[EngineMetric, list[SeriesPoint]] = {}
    for row in rows:
        point = SeriesPoint(at=row["at"], min=row["min"], max=row["max"], mean=row["mean"])
        series.setdefault(EngineMetric(row["metric"]), []).append(point)
    return replace(
        view,
        bucket_seconds=bucket.total_seconds(),
        series={metric: tuple(points) for metric, points in series.items()},
    )


def build_routes(samples: EngineSamples) -> list[Route]:
    return [
        query_route(samples.series, GetEngineSeries),
        query_route(samples.list, ListEngineSamples),
    ]
