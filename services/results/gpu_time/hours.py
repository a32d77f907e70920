"""The ledger's hours: of every device, what each GPU-microsecond was, adding up exactly.

Times count in whole milliseconds and devices in hundredths, so that amounts are whole numbers of
GPU-microseconds, 10 for a hundredth of a device for a millisecond. What a device was follows from
the intervals of its holdings and cordons, and from the time that its samples cover:

- held by a reservation, or by pods of Kubernetes: used, idle, or unknown where no sample with a
  utilization covers it;
- not held: cordoned; else free where any sample covers it, unknown where none does, or where it is
  not known whether a pod had it.

Reservations come first, and pods share what these leave: each its part, in proportion where these
are more than there is. A pod of a reservation counts as that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from services.results.domain.packed_spans import spans_of
from services.results.domain.pods import UNKNOWN_POD
from services.results.domain.rollup import HOUR, start_of
from services.results.gpu_time.stretches import IS_BUSY, STRETCHES
from shared.clock import utcnow
from shared.postgres.database import Connection, Database, Row

POLL_SECONDS: Final = 5.0
# An hour is computed that long after its end; what comes later has it computed again.
SETTLE_TIME: Final = timedelta(seconds=15)
MAX_NODE_HOURS: Final = 100  # in one transaction
# A device that reports nothing any more counts, as unknown, for that long.
ABSENCE_LIMIT: Final = timedelta(days=7)
NOBODY: Final = UUID(int=0)  # in place of a reservation, for what is not held

MARK: Final = """
INSERT INTO ledger_due AS due (node_id, hour)
SELECT node_id, hour FROM unnest($1::text[], $2::timestamptz[]) AS reached (node_id, since)
CROSS JOIN generate_series(since, $3::timestamptz, '1 hour') AS hour
ORDER BY 1, 2 ON CONFLICT (node_id, hour) DO UPDATE SET marks = due.marks + 1
"""

LOCK_PROGRESS: Final = "SELECT closed_until FROM ledger_progress FOR UPDATE"
UPDATE_PROGRESS: Final = "UPDATE ledger_progress SET closed_until = $1"
SELECT_NODES: Final = "SELECT DISTINCT node_id FROM device ORDER BY node_id"

# Taken in one statement and computed by the next: what was committed by what marked them is seen.
TAKE_DUE: Final = """
DELETE FROM ledger_due WHERE (node_id, hour) IN (
    SELECT node_id, hour FROM ledger_due WHERE hour < $1
    ORDER BY hour, node_id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING node_id, hour
"""

# A device counts from its first sample or holding on. One that is stored later, but is earlier,
# marks every hour since.
SELECT_FRAMES: Final = f"""
SELECT device_no, hour, CASE WHEN EXISTS (
        SELECT FROM sample_hour WHERE sample_hour.device_no = device.device_no
        AND at > hour - $3::interval AND at < hour)
    THEN hour ELSE greatest(hour, date_trunc('milliseconds', least(
        (SELECT min(observed_at) FROM stored_sample
         WHERE stored_sample.device_no = device.device_no
         AND observed_at >= hour AND observed_at < hour + interval '1 hour'
         AND {spans_of("hour", "hour + interval '1 hour'")}),
        (SELECT min(granted_at) FROM device_holding AS holding
         WHERE holding.device_no = device.device_no
         AND granted_at < hour + interval '1 hour' AND ended_at > hour)))) END AS start_at
FROM unnest($1::text[], $2::timestamptz[]) AS due (node_id, hour) JOIN device USING (node_id)
WHERE EXISTS (
    SELECT FROM sample_hour WHERE sample_hour.device_no = device.device_no
    AND at > hour - $3::interval AND at <= hour)
OR EXISTS (
    SELECT FROM stored_sample WHERE stored_sample.device_no = device.device_no
    AND observed_at >= hour AND observed_at < hour + interval '1 hour'
    AND {spans_of("hour", "hour + interval '1 hour'")})
OR EXISTS (
    SELECT FROM device_holding WHERE device_holding.device_no = device.device_no
    AND granted_at < hour + interval '1 hour' AND ended_at > hour)
"""

DELETE_HOURS: Final = """
DELETE FROM ledger_hour USING unnest($1::text[], $2::timestamptz[]) AS due (node_id, hour), device
WHERE device.node_id = due.node_id AND ledger_hour.device_no = device.device_no
  AND ledger_hour.hour = due.hour
"""

# The steps: 1. each hour of a device is cut wherever a holding or a cordon begins or ends. 2. Of
# each segment between two cuts it is counted what samples cover: by minutes that were rolled up
# where these lie in it as a whole, by raw samples for the others. 3. What is covered is divided
# among those who hold the device, the eldest first (clocks may let two of them overlap), and the
# rest.
COMPUTE: Final = f"""
WITH frame AS MATERIALIZED (
    SELECT device_no, hour, least(start_at, $3::timestamptz) AS start_at,
        least(hour + interval '1 hour', $3::timestamptz) AS end_at
    FROM unnest($1::int[], $2::timestamptz[], $6::timestamptz[])
        AS frame (device_no, hour, start_at)),
held AS MATERIALIZED (
    SELECT frame.device_no, hour, reservation_id, hundredths, epoch,
        date_trunc('milliseconds', greatest(start_at, granted_at)) AS start_at,
        date_trunc('milliseconds', least(end_at, ended_at)) AS end_at
    FROM frame JOIN device_holding AS holding USING (device_no)
    WHERE granted_at < end_at AND ended_at > greatest(start_at, granted_at)),
change AS (
    SELECT frame.device_no, hour, start_at, end_at, cordoned, revision,
        max(at) OVER (PARTITION BY frame.device_no, hour ORDER BY revision) AS at
    FROM frame JOIN device USING (device_no) JOIN cordon_change
        ON cordon_change.node_id = device.node_id
        AND cordon_change.device_uuid IN (device.device_uuid, '')),
cordon AS MATERIALIZED (
    SELECT device_no, hour, date_trunc('milliseconds', greatest(at, start_at)) AS start_at,
        date_trunc('milliseconds', least(coalesce(following_at, 'infinity'), end_at)) AS end_at
    FROM (SELECT change.*,
              lead(at) OVER (PARTITION BY device_no, hour ORDER BY revision) AS following_at
          FROM change) AS change
    WHERE cordoned AND at < end_at
        AND coalesce(following_at, 'infinity') > greatest(at, start_at)),
pod_time AS MATERIALIZED (
    SELECT frame.device_no, hour, pod_id, coalesce(reservation_id, pod_id) AS holder_id,
        coalesce(percent, 100) AS weight, lower(had) AS start_at, upper(had) AS end_at
    FROM frame JOIN pod_holding AS given USING (device_no) LEFT JOIN pod USING (pod_id)
    CROSS JOIN LATERAL unnest(times * tstzmultirange(tstzrange(start_at, end_at))) AS had
    WHERE given.ended_at > start_at AND given.began_at < end_at),
untold AS MATERIALIZED (
    SELECT * FROM (
        SELECT device_no, hour, start_at, end_at FROM pod_time WHERE pod_id = '{UNKNOWN_POD}'
        UNION
        SELECT frame.device_no, hour, greatest(start_at, minute),
            least(end_at, minute + interval '1 minute')
        FROM frame JOIN device USING (device_no) JOIN agent_boot USING (node_id)
        CROSS JOIN LATERAL unnest(due) AS minute
        WHERE minute < end_at AND minute + interval '1 minute' > start_at) AS span
    WHERE EXISTS (
        SELECT FROM pod_holding AS given WHERE given.device_no = span.device_no
        AND pod_id <> '{UNKNOWN_POD}' AND given.ended_at > hour - interval '{
    ABSENCE_LIMIT.days
} days'
        AND given.began_at < hour + interval '1 hour')),
cut AS (
    SELECT device_no, hour, start_at AS at FROM frame
    UNION SELECT device_no, hour, end_at FROM frame
    UNION SELECT device_no, hour, start_at FROM held UNION SELECT device_no, hour, end_at FROM held
    UNION SELECT device_no, hour, start_at FROM cordon
    UNION SELECT device_no, hour, end_at FROM cordon
    UNION SELECT device_no, hour, start_at FROM pod_time
    UNION SELECT device_no, hour, end_at FROM pod_time
    UNION SELECT device_no, hour, start_at FROM untold
    UNION SELECT device_no, hour, end_at FROM untold),
segment AS MATERIALIZED (
    SELECT device_no, hour, start_at, end_at,
        (extract(epoch FROM end_at - start_at) * 1000)::bigint AS ms
    FROM (SELECT device_no, hour, at AS start_at,
              lead(at) OVER (PARTITION BY device_no, hour ORDER BY at) AS end_at FROM cut) AS pair
    WHERE end_at IS NOT NULL),
slice AS MATERIALIZED (
    SELECT part.*, seen_ms, idle_ms, busy_ms, energy_mj, memory_used_mb_max AS memory_mb
    FROM (
        SELECT device_no, hour, segment.start_at AS segment_at, minute,
            greatest(segment.start_at, minute) AS start_at,
            least(segment.end_at, minute + interval '1 minute') AS end_at
        FROM segment CROSS JOIN generate_series(
            date_bin('1 minute', segment.start_at, '2000-01-01Z'),
            segment.end_at - interval '1 millisecond', '1 minute') AS minute) AS part
    LEFT JOIN sample_minute ON sample_minute.device_no = part.device_no
        AND sample_minute.at = minute AND sample_minute.at >= $4 AND sample_minute.at < $5
        AND part.end_at - part.start_at = interval '1 minute'),
split AS MATERIALIZED (
    SELECT DISTINCT device_no, minute FROM slice WHERE seen_ms IS NULL),
stretch AS MATERIALIZED ({
    STRETCHES.format(
        source=f'''
    SELECT split.device_no, minute, observed_at, boot_id, sequence, interval_seconds,
        utilization_percent, power_draw_w, memory_used_mb
    FROM split JOIN stored_sample ON stored_sample.device_no = split.device_no
        AND observed_at >= minute AND observed_at < minute + interval '1 minute'
        AND observed_at >= $4 AND observed_at < $5 AND {spans_of("$4", "$5")}'''
    )
}),
seen AS MATERIALIZED (
    SELECT device_no, hour, segment_at, minute, sum(seen_ms)::bigint AS seen_ms,
        sum(idle_ms)::bigint AS idle_ms, sum(busy_ms)::bigint AS busy_ms,
        sum(energy_mj) AS energy_mj, max(memory_mb) AS memory_mb
    FROM (
        SELECT device_no, hour, segment_at, minute, seen_ms, idle_ms, busy_ms, energy_mj, memory_mb
        FROM slice WHERE seen_ms IS NOT NULL
        UNION ALL
        SELECT slice.device_no, hour, segment_at, slice.minute, covered.ms,
            CASE WHEN NOT {IS_BUSY} THEN covered.ms ELSE 0 END,
            CASE WHEN {IS_BUSY} THEN covered.ms ELSE 0 END, power_draw_w * covered.ms,
            memory_used_mb
        FROM slice JOIN stretch ON stretch.device_no = slice.device_no
            AND stretch.minute = slice.minute AND since < end_at AND until > start_at
        CROSS JOIN LATERAL (SELECT (extract(epoch FROM
            least(until, end_at) - greatest(since, start_at)) * 1000)::bigint AS ms) AS covered
        WHERE slice.seen_ms IS NULL) AS each
    GROUP BY 1, 2, 3, 4),
tally AS MATERIALIZED (
    SELECT device_no, hour, segment_at, sum(seen_ms)::bigint AS seen_ms,
        sum(idle_ms)::bigint AS idle_ms, sum(busy_ms)::bigint AS busy_ms,
        sum(energy_mj) AS energy_mj, max(memory_mb) AS memory_mb
    FROM seen GROUP BY 1, 2, 3),
known AS MATERIALIZED (
    SELECT segment.*, coalesce(seen_ms, 0) AS seen_ms, coalesce(idle_ms, 0) AS idle_ms,
        coalesce(busy_ms, 0) AS busy_ms, coalesce(energy_mj, 0) AS energy_mj, memory_mb
    FROM segment LEFT JOIN tally ON tally.device_no = segment.device_no
        AND tally.hour = segment.hour AND segment_at = segment.start_at),
part AS MATERIALIZED (
    SELECT known.*, reservation_id, greatest(0, least(hundredths, 100 - coalesce(sum(hundredths)
        OVER (PARTITION BY known.device_no, known.hour, known.start_at
              ORDER BY epoch, reservation_id
              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))) AS hundredths
    FROM known JOIN held ON held.device_no = known.device_no AND held.hour = known.hour
        AND held.start_at <= known.start_at AND held.end_at >= known.end_at),
room AS MATERIALIZED (
    SELECT known.*, 100 - coalesce((
        SELECT sum(hundredths) FROM part WHERE part.device_no = known.device_no
        AND part.hour = known.hour AND part.start_at = known.start_at), 0)::bigint AS room
    FROM known),
pod_part AS MATERIALIZED (
    SELECT room.*, pod_id, holder_id, count(*) OVER whole = 1 AND room = 100 AS is_alone,
        sum(weight) OVER upto * room / greatest(sum(weight) OVER whole, room)
        - (sum(weight) OVER upto - weight) * room
            / greatest(sum(weight) OVER whole, room) AS hundredths
    FROM room JOIN pod_time ON pod_time.device_no = room.device_no AND pod_time.hour = room.hour
        AND pod_time.start_at <= room.start_at AND pod_time.end_at >= room.end_at
    WHERE pod_id <> '{UNKNOWN_POD}'
    WINDOW whole AS (PARTITION BY room.device_no, room.hour, room.start_at),
        upto AS (PARTITION BY room.device_no, room.hour, room.start_at ORDER BY pod_id)),
pod_use AS MATERIALIZED (
    SELECT pod_part.device_no, pod_part.hour, holder_id, ms, hundredths,
        pod_part.energy_mj, coalesce(sum(own.busy), 0)::bigint AS busy_ms,
        coalesce(sum(own.idle), 0)::bigint AS idle_ms,
        max(CASE WHEN is_alone THEN seen.memory_mb ELSE memory_used_mb_max END) AS memory_mb
    FROM pod_part LEFT JOIN seen ON seen.device_no = pod_part.device_no
        AND seen.hour = pod_part.hour AND segment_at = start_at
    LEFT JOIN pod_minute AS used ON used.pod_id = pod_part.pod_id AND NOT is_alone
        AND used.device_no = pod_part.device_no AND used.at = minute
    CROSS JOIN LATERAL (
        SELECT CASE WHEN utilization_percent_count > 0
            THEN seen.seen_ms * used.busy / utilization_percent_count ELSE seen.busy_ms END AS busy,
        CASE WHEN utilization_percent_count > 0
            THEN seen.seen_ms - seen.seen_ms * used.busy / utilization_percent_count
            ELSE seen.idle_ms END AS idle) AS own
    GROUP BY pod_part.device_no, pod_part.hour, pod_part.start_at, pod_part.pod_id, holder_id, ms,
        hundredths, pod_part.energy_mj),
remainder AS (
    SELECT room.*, room - coalesce((
            SELECT sum(hundredths) FROM pod_part WHERE pod_part.device_no = room.device_no
            AND pod_part.hour = room.hour AND pod_part.start_at = room.start_at), 0) AS hundredths,
        EXISTS (
            SELECT FROM cordon WHERE cordon.device_no = room.device_no AND cordon.hour = room.hour
            AND cordon.start_at <= room.start_at AND cordon.end_at >= room.end_at) AS cordoned,
        CASE WHEN EXISTS (
            SELECT FROM untold WHERE untold.device_no = room.device_no AND untold.hour = room.hour
            AND untold.start_at <= room.start_at AND untold.end_at >= room.end_at)
        THEN 0 ELSE seen_ms END AS free_ms
    FROM room)
SELECT hour, device_no, reservation_id, sum(busy_ms * hundredths * 10)::bigint AS used_us,
    sum(idle_ms * hundredths * 10)::bigint AS idle_us, 0::bigint AS free_us,
    0::bigint AS cordoned_us, sum((ms - busy_ms - idle_ms) * hundredths * 10)::bigint AS unknown_us,
    sum(energy_mj * hundredths::float8 / 100) AS energy_mj, max(memory_mb) AS memory_mb
FROM (
    SELECT hour, device_no, reservation_id, busy_ms, idle_ms, ms, hundredths, energy_mj, memory_mb
    FROM part UNION ALL
    SELECT hour, device_no, holder_id, busy_ms, idle_ms, ms, hundredths, energy_mj, memory_mb
    FROM pod_use) AS held
GROUP BY 1, 2, 3
UNION ALL
SELECT hour, device_no, '{NOBODY}'::uuid, 0, 0,
    sum(CASE WHEN cordoned THEN 0 ELSE free_ms * hundredths * 10 END)::bigint,
    sum(CASE WHEN cordoned THEN ms * hundredths * 10 ELSE 0 END)::bigint,
    sum(CASE WHEN cordoned THEN 0 ELSE (ms - free_ms) * hundredths * 10 END)::bigint,
    sum(energy_mj * hundredths::float8 / 100), NULL
FROM remainder GROUP BY 1, 2
"""

COLUMNS: Final = (
    "hour, device_no, reservation_id, used_us, idle_us, free_us, cordoned_us, unknown_us,"
    " energy_mj, memory_mb"
)
INSERT_HOURS: Final = f"INSERT INTO ledger_hour ({COLUMNS}) {COMPUTE}"

# In this order: a reservation stays as long as an hour of it.
FORGET: Final = (
    "DELETE FROM ledger_hour WHERE hour < $1",
    "DELETE FROM device_holding WHERE ended_at < $1",
    "DELETE FROM reservation WHERE ended_at < $1",
    "DELETE FROM pod_holding WHERE ended_at < $1",
    "DELETE FROM pod WHERE seen_at < $1",
)
FORGET_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class GpuHours:
    """Computes hours that are over, and again what was computed before all of it was known."""

    database: Database
    samples_kept: timedelta
    hours_kept: timedelta

    async def run(self) -> None:
        """Compute until cancelled. Raises UnavailableError when Postgres is down."""
        clock = asyncio.get_running_loop().time
        forget_at = clock()
        while True:
            now = utcnow()
            await self.close_hours(now)
            await self.compute_due(now)
            if clock() >= forget_at:
                async with self.database.transaction() as connection:
                    for statement in FORGET:
                        await connection.execute(statement, now - self.hours_kept)
                forget_at = clock() + FORGET_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    async def close_hours(self, now: datetime) -> None:
        """Mark the hours that have ended, of all nodes: silence leaves no mark by itself."""
        until = start_of(now, HOUR)
        async with self.database.transaction() as connection:
            since = await connection.fetchval(LOCK_PROGRESS)
            if since >= until:
                return
            since = max(since, start_of(now - self.samples_kept, HOUR))
            nodes = [row["node_id"] for row in await connection.fetch(SELECT_NODES)]
            await mark(connection, dict.fromkeys(nodes, since), until - HOUR)
            await connection.execute(UPDATE_PROGRESS, until)

    async def compute_due(self, now: datetime) -> None:
        """Compute every marked hour that is over."""
        while True:
            async with self.database.transaction() as connection:
                due = await connection.fetch(
                    TAKE_DUE, start_of(now - SETTLE_TIME, HOUR), MAX_NODE_HOURS
                )
                if not due:
                    return
                nodes, hours = [row["node_id"] for row in due], [row["hour"] for row in due]
                await connection.execute(DELETE_HOURS, nodes, hours)
                frames = await connection.fetch(SELECT_FRAMES, nodes, hours, ABSENCE_LIMIT)
                if frames:
                    await connection.execute(INSERT_HOURS, *_arguments(frames, now))


async def mark(connection: Connection, since: Mapping[str, datetime], until: datetime) -> None:
    """Have hours of nodes computed, each from a time on; last in a transaction.

    A row is updated even if it is there: a transaction that computes it now must not miss this one.
    """
    if since:
        starts = [start_of(at, HOUR) for at in since.values()]
        await connection.execute(MARK, list(since), starts, until)


async def compute(connection: Connection, hour: datetime, now: datetime) -> Sequence[Row]:
    """An hour that is not over, up to now: rows as they will be stored."""
    nodes = [row["node_id"] for row in await connection.fetch(SELECT_NODES)]
    frames = await connection.fetch(SELECT_FRAMES, nodes, [hour] * len(nodes), ABSENCE_LIMIT)
    if not frames:
        return ()
    return await connection.fetch(COMPUTE, *_arguments(frames, now))


def _arguments(frames: Sequence[Row], now: datetime) -> tuple[object, ...]:
    hours = [row["hour"] for row in frames]
    until = now.replace(microsecond=now.microsecond // 1000 * 1000)
    starts = [row["start_at"] for row in frames]
    return (
        [row["device_no"] for row in frames],
        hours,
        until,
        min(hours),
        max(hours) + HOUR,
        starts,
    )
