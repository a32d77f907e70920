"""Series and usage reports, computed by Postgres."""

from datetime import timedelta
from typing import Final

from schemas.results import (
    DeviceSeries,
    GetReport,
    GetSeries,
    ReportView,
    SeriesPoint,
    SeriesView,
    UsageRow,
)
from shared.postgres.database import Connection

# What fits into one message of the bus with room to spare.
LARGEST_ANSWER_POINTS: Final = 12_000
SMALLEST_BUCKET: Final = timedelta(milliseconds=1)


# All samples, or an experiment's own; both go by the name `sample`.
ALL_SAMPLES: Final = "(SELECT *, NULL::uuid AS experiment_id FROM sample) AS sample"

EXPERIMENT_SAMPLES: Final = """(
    SELECT experiment_sample.*, experiment_id
    FROM experiment_sample JOIN attempt USING (attempt_id)) AS sample"""

SELECT_SPAN: Final = """
SELECT min(observed_at) AS first_at, max(observed_at) AS last_at
FROM experiment_sample JOIN attempt USING (attempt_id)
WHERE experiment_id = $1 AND observed_at >= $2 AND observed_at < $3
"""

SELECT_DEVICES: Final = """
SELECT device_no, node_id, device_uuid, device_index FROM device
WHERE ($1::text IS NULL OR node_id = $1) AND ($2::text IS NULL OR device_uuid = $2)
  AND EXISTS (
    SELECT FROM {source}
    WHERE sample.device_no = device.device_no AND ($3::uuid IS NULL OR experiment_id = $3)
      AND observed_at >= $4 AND observed_at < $5)
ORDER BY node_id, device_index, device_uuid
"""

SELECT_BUCKETS: Final = """
SELECT device_no, date_bin($1, observed_at, $2) AS at, min({metric})::float8 AS min,
       max({metric})::float8 AS max, avg({metric})::float8 AS mean
FROM {source}
WHERE device_no = ANY ($4) AND observed_at >= $2 AND observed_at < $3
  AND ($5::uuid IS NULL OR experiment_id = $5) AND {metric} IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, 2
"""

# Of an attempt that reaches beyond the range, the part inside counts: its GPU hours exactly, its
# energy in proportion to time. One without a duration counts whole.
SELECT_USAGE: Final = """
SELECT namespace, count(DISTINCT experiment_id) AS experiments,
       sum(gpus * extract(epoch FROM stop - start))::float8 / 3600 AS gpu_hours,
       sum(energy_wh * CASE WHEN finished_at > started_at
         THEN extract(epoch FROM stop - start) / extract(epoch FROM finished_at - started_at)
         ELSE 1 END)::float8 AS energy_wh
FROM (
    SELECT attempt.*, energy_wh, greatest(started_at, $1) AS start, least(finished_at, $2) AS stop
    FROM attempt LEFT JOIN summary USING (attempt_id)
    WHERE finished_at >= $1 AND started_at < $2) AS used
GROUP BY namespace ORDER BY gpu_hours DESC, namespace
"""


async def series(connection: Connection, query: GetSeries) -> SeriesView:
    """A metric's history per device, in at most `points` buckets each.

    Of an experiment: its devices within its own samples. The buckets widen where a fleet's answer
    would not fit into one message.
    """
    start_at, end_at, source = query.start_at, query.end_at, ALL_SAMPLES
    if query.experiment_id is not None:
        source = EXPERIMENT_SAMPLES
        [row] = await connection.fetch(SELECT_SPAN, query.experiment_id, start_at, end_at)
        if row["first_at"] is not None:
            start_at, end_at = row["first_at"], row["last_at"] + SMALLEST_BUCKET
    devices = await connection.fetch(
        SELECT_DEVICES.format(source=source),
        query.node_id,
        query.device_uuid,
        query.experiment_id,
        start_at,
        end_at,
    )
    points = max(1, min(query.points, LARGEST_ANSWER_POINTS // max(len(devices), 1)))
    bucket = max((end_at - start_at) / points, SMALLEST_BUCKET)
    while devices and start_at + bucket * points < end_at:
        bucket += timedelta(microseconds=1)
    found: dict[int, list[SeriesPoint]] = {device["device_no"]: [] for device in devices}
    for row in await connection.fetch(
        SELECT_BUCKETS.format(metric=query.metric.value, source=source),
        bucket,
        start_at,
        end_at,
        list(found),
        query.experiment_id,
    ):
        found[row["device_no"]].append(
            SeriesPoint(at=row["at"], min=row["min"], max=row["max"], mean=row["mean"])
        )
    return SeriesView(
        metric=query.metric,
        bucket_seconds=max(bucket.total_seconds(), 0.0),
        devices=tuple(
            DeviceSeries(
                node_id=device["node_id"],
                device_uuid=device["device_uuid"],
                index=device["device_index"],
                points=tuple(found[device["device_no"]]),
            )
            for device in devices
        ),
    )


async def report(connection: Connection, query: GetReport) -> ReportView:
    """GPU hours and measured energy per namespace, of attempts as far as they lie in the range."""
    rows = await connection.fetch(SELECT_USAGE, query.start_at, query.end_at)
    return ReportView(rows=tuple(UsageRow(**dict(row)) for row in rows))
