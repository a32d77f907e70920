"""Rolls samples up by minutes and hours, each from all that is stored of it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from services.results.domain.rollup import HOUR, MINUTE
from services.results.gpu_time import pod_times
from services.results.gpu_time.hours import mark
from services.results.gpu_time.stretches import IN_MINUTE, IS_BUSY, STRETCHES
from services.results.history import METRICS
from services.results.samples.partitions import TRY_LOCK, Partitions, midnight, remaking_dropped
from shared.clock import utcnow
from shared.postgres.database import Connection, Database

POLL_SECONDS: Final = 5.0
# A minute is rolled up that long after its end, or when its agent's samples have gone on.
SETTLE_TIME: Final = timedelta(seconds=5)
MAX_NODE_MINUTES: Final = 500  # in one transaction, while which their agents' samples wait

ROLLUP_LOCK: Final = 0x67707372

# Of the earliest hours only: an hour is not computed again and again while its minutes are.
SELECT_READY: Final = """
SELECT node_id, minute
FROM (SELECT node_id, unnest(due) AS minute, due[cardinality(due)] AS newest FROM agent_boot)
    AS due
WHERE minute < newest OR minute <= $1 GROUP BY 1, 2
ORDER BY date_bin('1 hour', minute, '2000-01-01Z'), node_id, minute LIMIT $2
"""

# A transaction that stores samples of these nodes has committed, or waits.
LOCK_BOOTS: Final = """
SELECT node_id, boot_id FROM agent_boot WHERE node_id = ANY ($1)
ORDER BY node_id, boot_id FOR UPDATE
"""

_COLUMNS: Final = (
    "samples",
    "seconds",
    *(f"{metric}_{part}" for metric in METRICS for part in ("count", "min", "max", "sum")),
)
_OF_SAMPLES: Final = ", ".join(
    f"count({m}), min({m})::float8, max({m})::float8, sum({m})::float8" for m in METRICS
)
_OF_ROLLUPS: Final = ", ".join(
    f"sum({m}_count), min({m}_min), max({m}_max), sum({m}_sum)" for m in METRICS
)


def _replacing(columns: Iterable[str]) -> str:
    values = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return f"ON CONFLICT (device_no, at) DO UPDATE SET {values}"


# For how long a device was seen, idle and busy, and what it used: the ledger adds these up.
_OF_MINUTES: Final = ("seen_ms", "idle_ms", "busy_ms", "energy_mj")
ROLL_UP_MINUTES: Final = f"""
INSERT INTO sample_minute (device_no, at, {", ".join((*_COLUMNS, *_OF_MINUTES))})
SELECT device_no, minute, count(*), sum(interval_seconds), {_OF_SAMPLES}, sum(ms),
       coalesce(sum(ms) FILTER (WHERE NOT {IS_BUSY}), 0),
       coalesce(sum(ms) FILTER (WHERE {IS_BUSY}), 0), coalesce(sum(power_draw_w * ms), 0)
FROM ({STRETCHES.format(source=IN_MINUTE.format(columns=", ".join(METRICS)))}) AS covered
GROUP BY 1, 2 {_replacing((*_COLUMNS, *_OF_MINUTES))}
"""

ROLL_UP_HOURS: Final = f"""
INSERT INTO sample_hour (device_no, at, {", ".join(_COLUMNS)})
SELECT device_no, hour, sum(samples), sum(seconds), {_OF_ROLLUPS}
FROM (SELECT DISTINCT node_id, date_bin('1 hour', minute, '2000-01-01Z') AS hour
      FROM unnest($1::text[], $2::timestamptz[]) AS due (node_id, minute)) AS due
JOIN device USING (node_id) JOIN sample_minute USING (device_no)
WHERE at >= hour AND at < hour + interval '1 hour' AND at >= $3 AND at < $4
GROUP BY 1, 2 {_replacing(_COLUMNS)}
"""

# Of the locked ones only: another boot's first samples may have come since the rollup.
UPDATE_BOOTS: Final = """
UPDATE agent_boot SET due = ARRAY(
    SELECT unnest(due) EXCEPT
    SELECT minute FROM unnest($1::text[], $2::timestamptz[]) AS done (node_id, minute)
    WHERE done.node_id = agent_boot.node_id
    ORDER BY 1)
FROM unnest($3::text[], $4::uuid[]) AS locked (node_id, boot_id)
WHERE agent_boot.node_id = locked.node_id AND agent_boot.boot_id = locked.boot_id
"""

# What is needed no longer than the raw samples.
FORGET: Final = (
    "DELETE FROM agent_boot WHERE due = '{}' AND stored_at < $1",
    "DELETE FROM device_fault WHERE occurred_at < $1",
    "DELETE FROM running_attempt WHERE started_at < $1",
    """
DELETE FROM condition WHERE used_at < $1::timestamptz - interval '1 day' AND NOT EXISTS (
    SELECT FROM experiment_sample WHERE experiment_sample.condition_no = condition.condition_no)
""",
)
FORGET_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Rollups:
    """Updates the rollups as samples come. One instance does, whichever finds the lock free."""

    database: Database
    minutes: Partitions
    hours: Partitions
    remember: timedelta

    async def run(self) -> None:
        """Roll up until cancelled. Raises UnavailableError when Postgres is down."""
        clock, forget_at = asyncio.get_running_loop().time, 0.0
        while True:
            await self.roll_up_ready(utcnow() - MINUTE - SETTLE_TIME)
            if clock() >= forget_at:
                await self.forget(utcnow() - self.remember)
                forget_at = clock() + FORGET_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    async def roll_up_ready(self, settled: datetime) -> None:
        """Roll up every due minute that starts at `settled` at the latest, or is not its agent's
        newest.
        """
        while True:
            async with self.database.transaction() as connection:
                rows = await connection.fetch(SELECT_READY, settled, MAX_NODE_MINUTES)
            if not rows:
                return
            days = {row["minute"].date() for row in rows}
            await self.minutes.make(days)
            await self.hours.make(days)
            nodes, minutes = [r["node_id"] for r in rows], [r["minute"] for r in rows]
            with remaking_dropped(self.minutes, self.hours):
                async with self.database.transaction() as connection:
                    if not await connection.fetchval(TRY_LOCK, ROLLUP_LOCK):
                        return
                    await _roll_up(connection, nodes, minutes)

    async def forget(self, until: datetime) -> None:
        """Delete what only raw samples from before then needed."""
        async with self.database.transaction() as connection:
            for statement in FORGET:
                await connection.execute(statement, until)
            await pod_times.forget(connection, midnight(self.minutes.oldest_kept()))


async def _roll_up(connection: Connection, nodes: list[str], minutes: list[datetime]) -> None:
    since: dict[str, datetime] = {}
    for node_id, minute in zip(nodes, minutes, strict=True):
        since[node_id] = min(minute, since.get(node_id, minute))
    # Before samples have to wait for this: it waits for hours that are being computed.
    await mark(connection, since, utcnow())
    locked = await connection.fetch(LOCK_BOOTS, nodes)
    boots = [row["node_id"] for row in locked], [row["boot_id"] for row in locked]
    first, last = min(minutes), max(minutes)
    await connection.execute(ROLL_UP_MINUTES, nodes, minutes, first, last + MINUTE)
    await connection.execute(ROLL_UP_HOURS, nodes, minutes, first - HOUR, last + HOUR)
    await pod_times.record(connection, nodes, minutes)
    await connection.execute(UPDATE_BOOTS, nodes, minutes, *boots)
