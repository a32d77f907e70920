"""Packs the samples of earlier hours, a device's together, which takes half of their room."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from services.results.domain.packed_spans import SPAN
from services.results.domain.rollup import start_of
from services.results.samples.copied_rows import FLOATS, INTEGERS, TICK_COLUMNS
from services.results.samples.partitions import TRY_LOCK, Partitions, remaking_dropped
from shared.clock import utcnow
from shared.postgres.database import Database, Row

# What is read most is read as it came: charts of half an hour, and attempts that have just ended.
PACK_AFTER: Final = timedelta(hours=1)
# What one transaction packs: at a tick each second 7,200, of 8 devices each in well under a second.
MAX_SETS: Final = 8
MAX_TIME: Final = 3 * SPAN

PACK_LOCK: Final = 0x6770736B

# One step into the index for each set.
SELECT_OLD: Final = """
SELECT set_id, oldest.observed_at
FROM (SELECT DISTINCT set_id FROM device_place) AS known CROSS JOIN LATERAL (
    SELECT observed_at FROM tick
    WHERE tick.set_id = known.set_id AND observed_at < $1
    ORDER BY observed_at LIMIT 1) AS oldest
ORDER BY observed_at, set_id
"""


def _gather(columns: Iterable[str]) -> str:
    return ", ".join(f"array_agg({name}) AS {name}" for name in columns)


def _cut(array: str, columns: Sequence[str]) -> str:
    """Return a device's part of the gathered ticks, column by column."""
    return ", ".join(f"{array}[:][place:place][{n}:{n}]" for n in range(1, len(columns) + 1))


# Ticks are put in order and gathered by sets; then each device's part is cut out, which `unnest`
# reads as any array.
PACK: Final = f"""
WITH moved AS (
    DELETE FROM tick WHERE set_id = ANY ($1) AND observed_at >= $2 AND observed_at < $3
    RETURNING {", ".join(TICK_COLUMNS)}),
gathered AS MATERIALIZED (
    SELECT set_id, date_bin($4, observed_at, '2000-01-01Z') AS span_at, boot_id,
           {_gather(name for name in TICK_COLUMNS if name not in {"set_id", "boot_id"})}
    FROM (SELECT {", ".join(TICK_COLUMNS)} FROM moved
          ORDER BY set_id, observed_at, sequence) AS ordered
    GROUP BY 1, 2, 3)
INSERT INTO packed_sample (device_no, span_at, boot_id, observed_at, sequence, interval_seconds,
    {", ".join((*FLOATS, *INTEGERS))})
SELECT device_no, span_at, boot_id, observed_at, sequence, interval_seconds,
       {_cut("floats", FLOATS)}, {_cut("integers", INTEGERS)}::int[]
FROM gathered JOIN device_place USING (set_id)
"""


@dataclass(frozen=True, slots=True)
class Packing:
    """Moves samples that are old enough into packed rows. One instance does, whichever finds the
    lock free; late samples of a span that is packed make another row of it.
    """

    database: Database
    partitions: Partitions

    async def run(self) -> None:
        """Pack until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            await self.pack_old(utcnow() - PACK_AFTER)
            await asyncio.sleep(SPAN.total_seconds())

    async def pack_old(self, until: datetime) -> None:
        """Pack every sample of the spans that ended by then."""
        clock, until = asyncio.get_running_loop().time, start_of(until, SPAN)
        while True:
            async with self.database.transaction() as connection:
                old = await connection.fetch(SELECT_OLD, until)
            if not old:
                return
            for at in range(0, len(old), MAX_SETS):
                start_seconds = clock()
                if not await self._pack(old[at : at + MAX_SETS], until):
                    return
                # Samples that arrive come first, also where there are days to pack.
                await asyncio.sleep(clock() - start_seconds)

    async def _pack(self, sets: Sequence[Row], until: datetime) -> bool:
        """Pack the eldest ticks of some sets; return False if another instance is at it."""
        start = start_of(min(row["observed_at"] for row in sets), SPAN)
        end = min(until, start + MAX_TIME)
        await self.partitions.make({start.date(), (end - SPAN).date()})
        ids = [row["set_id"] for row in sets]
        with remaking_dropped(self.partitions):
            async with self.database.transaction() as connection:
                if not await connection.fetchval(TRY_LOCK, PACK_LOCK):
                    return False
                await connection.execute(PACK, ids, start, end, SPAN)
        return True
