"""What releasing idle reservations would have freed, by minutes of samples."""

from dataclasses import dataclass
from typing import Final

from schemas.errors import ErrorCode
from schemas.results.reports import GetIdle, IdleLine, IdleView
from shared.errors import RefusedError
from shared.messaging.bus import Route, query_route
from shared.postgres.database import Database

# A minute's readings come a tick apart: what is missing at its edges is no gap.
SEEN_MS: Final = 55_000

# The steps: 1. minutes of a reservation in which every GPU of it was read all along and stayed
# idle; 2. those without a gap between them, together; 3. of these, what lies beyond window and
# grace. Who shares a device is as busy as the device.
SELECT_IDLE: Final = """
WITH held AS MATERIALIZED (
    SELECT reservation_id, namespace, holder, device_no, hundredths,
        greatest(holding.granted_at, $1) AS start_at, least(holding.ended_at, $2) AS end_at,
        count(*) OVER (PARTITION BY reservation_id) AS devices
    FROM device_holding AS holding JOIN reservation USING (reservation_id)
    WHERE holding.granted_at < $2 AND holding.ended_at > $1 AND holder NOT LIKE 'experiment/%'
        AND ($3::text IS NULL OR namespace = $3)),
minute AS MATERIALIZED (
    SELECT reservation_id, at, max(utilization_percent_max) >= $5 AS is_busy,
        count(*) FILTER (WHERE seen_ms >= $6 AND utilization_percent_count = samples
            AND utilization_percent_max < $5) = max(devices) AS is_idle
    FROM held JOIN sample_minute AS sampled ON sampled.device_no = held.device_no
        AND at >= start_at AND at + interval '1 minute' <= end_at AND at >= $1 AND at < $2
    GROUP BY 1, 2),
stretch AS (
    SELECT reservation_id, count(*) AS minutes, max(at) AS last_at
    FROM (SELECT reservation_id, at, at - interval '1 minute'
              * row_number() OVER (PARTITION BY reservation_id ORDER BY at) AS stretch
          FROM minute WHERE is_idle) AS each
    GROUP BY reservation_id, stretch HAVING count(*) * 60 > $4::float8),
freed AS (
    SELECT reservation_id, sum(minutes * 60 - $4) AS seconds, bool_or(EXISTS (
        SELECT FROM minute WHERE minute.reservation_id = stretch.reservation_id
        AND minute.at > last_at AND is_busy)) AS used_again
    FROM stretch GROUP BY 1),
whole AS (
    SELECT reservation_id, namespace, holder, sum(hundredths) AS hundredths,
        sum(hundredths * extract(epoch FROM least(end_at, now()) - start_at)) AS held
    FROM held GROUP BY 1, 2, 3)
SELECT namespace, holder, count(*) AS reservations,
    (sum(seconds * hundredths) / 360000)::float8 AS freed_gpu_hours,
    (sum(held) / 360000)::float8 AS held_gpu_hours,
    count(*) FILTER (WHERE used_again) AS used_again
FROM freed JOIN whole USING (reservation_id)
GROUP BY 1, 2 ORDER BY 4 DESC, 1, 2
"""


@dataclass(frozen=True, slots=True)
class IdleReports:
    database: Database

    async def idle(self, query: GetIdle) -> IdleView:
        """Report idle time by namespace and holder."""
        if query.start_at >= query.end_at:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected an end after the start", path="$.end_at"
            )
        async with self.database.transaction() as connection:
            rows = await connection.fetch(
                SELECT_IDLE,
                query.start_at,
                query.end_at,
                query.namespace,
                query.window_seconds + query.grace_seconds,
                query.idle_percent,
                SEEN_MS,
            )
        lines = tuple(IdleLine(**dict(row)) for row in rows)
        return IdleView(start_at=query.start_at, end_at=query.end_at, lines=lines)


def build_routes(reports: IdleReports) -> list[Route]:
    return [query_route(reports.idle, GetIdle)]
