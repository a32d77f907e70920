"""The day partitions of the samples: made ahead, dropped when their days have passed."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

import asyncpg

from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Database

DAYS_AHEAD: Final = 2
UPKEEP_SECONDS: Final = 3600.0
DROP_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '2s'"
LOCK_DDL: Final = "SELECT pg_advisory_xact_lock($1)"
EXISTS: Final = "SELECT to_regclass($1) IS NOT NULL"

CREATE_PARTITION: Final = """
CREATE TABLE {name} PARTITION OF sample
FOR VALUES FROM ('{day}T00:00:00Z') TO ('{following}T00:00:00Z')
"""

DROP_PARTITION: Final = "DROP TABLE IF EXISTS {name}"

SELECT_PARTITIONS: Final = """
SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = 'sample'::regclass ORDER BY relname
"""

# DDL on partitions takes turns: two instances that made one at once would fail each other.
DDL_LOCK: Final = 0x67707361


def name_of(day: date) -> str:
    """The partition of one day, in UTC."""
    return f"sample_{day:%Y%m%d}"


def day_of(partition: str) -> date:
    """The day of a partition's name."""
    return datetime.strptime(partition, "sample_%Y%m%d").replace(tzinfo=UTC).date()


@dataclass(slots=True)
class Partitions:
    """The partitions of `sample`, by the days of the samples' own clocks."""

    database: Database
    retention_days: int
    known: set[date] = field(default_factory=set)

    async def run(self) -> None:
        """Make tomorrow's partition today and drop old ones, until cancelled."""
        while True:
            await self.make_ahead()
            await self.drop_old()
            await asyncio.sleep(UPKEEP_SECONDS)

    async def make_ahead(self) -> None:
        """The partitions of today and the next days."""
        today = utcnow().date()
        await self.make(today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1))

    async def make(self, days: Iterable[date]) -> None:
        """The partitions of these days, unless they are known to exist."""
        missing = sorted(set(days) - self.known)
        if not missing:
            return
        async with self.database.transaction() as connection:
            await connection.execute(LOCK_DDL, DDL_LOCK)
            for day in missing:
                name = name_of(day)
                if await connection.fetchval(EXISTS, name):
                    continue
                following = day + timedelta(days=1)
                await connection.execute(
                    CREATE_PARTITION.format(name=name, day=day, following=following)
                )
        self.known.update(missing)

    async def drop_old(self) -> None:
        """Drop the partitions whose days lie further back than the retention."""
        oldest = utcnow().date() - timedelta(days=self.retention_days)
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_PARTITIONS)
        for name in (row["relname"] for row in rows):
            if day_of(name) >= oldest:
                continue
            try:
                async with self.database.transaction() as connection:
                    # Readers of the parent would queue behind a drop that waits for its lock.
                    await connection.execute(DROP_LOCK_TIMEOUT)
                    await connection.execute(LOCK_DDL, DDL_LOCK)
                    await connection.execute(DROP_PARTITION.format(name=name))
            except (asyncpg.LockNotAvailableError, UnavailableError) as error:
                log.warning("partition_kept", partition=name, error=repr(error))
                continue
            self.known.discard(day_of(name))
            log.info("partition_dropped", partition=name)
