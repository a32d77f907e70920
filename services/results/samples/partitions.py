"""The partitions of samples and rollups: made ahead, dropped when their days have passed."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final

import asyncpg

from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Database

DAYS_AHEAD: Final = 2
UPKEEP_SECONDS: Final = 3600.0
DROP_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '2s'"
TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock($1)"
LOCK_DDL: Final = "SELECT pg_advisory_xact_lock($1)"
EXISTS: Final = "SELECT to_regclass($1) IS NOT NULL"

CREATE_PARTITION: Final = """
CREATE TABLE {name} PARTITION OF {table}
FOR VALUES FROM ('{first}T00:00:00Z') TO ('{following}T00:00:00Z') {options}
"""

DROP_PARTITION: Final = "DROP TABLE IF EXISTS {name}"

SELECT_PARTITIONS: Final = """
SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid
WHERE inhparent = to_regclass($1) ORDER BY relname
"""

# Rollups are computed from raw samples: these wait for that.
IS_DUE: Final = """
SELECT EXISTS (SELECT FROM agent_boot, unnest(due) AS minute WHERE minute >= $1 AND minute < $2)
"""

# DDL on partitions takes turns: two instances that made one at once would fail each other.
DDL_LOCK: Final = 0x67707361


class Table(StrEnum):
    """What is partitioned."""

    RAW = "tick"
    BY_DEVICE = "sample"  # of an earlier release: nothing makes more of it
    PACKED = "packed_sample"
    MINUTE = "sample_minute"
    HOUR = "sample_hour"

    @property
    def is_monthly(self) -> bool:
        return self is Table.HOUR

    @property
    def parent(self) -> str:
        """Return the table that it is called by, which a later release may have renamed."""
        return "sample_by_device" if self is Table.BY_DEVICE else self

    @property
    def options(self) -> str:
        """Return the storage options of a partition: short arrays are to be compressed too."""
        return "WITH (toast_tuple_target = 256)" if self is Table.PACKED else ""

    def first_day(self, day: date) -> date:
        """Return the first day of the partition of a day."""
        return day.replace(day=1) if self.is_monthly else day

    def following(self, first: date) -> date:
        """The first day of the next partition."""
        return (
            (first + timedelta(days=32)).replace(day=1)
            if self.is_monthly
            else first + timedelta(days=1)
        )

    def name_of(self, day: date) -> str:
        """The partition of a day, in UTC."""
        return f"{self}_{self.first_day(day):%Y%m%d}"

    def first_day_of(self, partition: str) -> date:
        """Return the first day of a partition, from its name."""
        return datetime.strptime(partition, f"{self}_%Y%m%d").replace(tzinfo=UTC).date()


@dataclass(slots=True)
class Partitions:
    """The partitions of one table, by the days of the samples' own clocks."""

    database: Database
    table: Table
    retention_days: int
    known_days: set[date] = field(default_factory=set)

    def oldest_kept(self) -> date:
        """The first day within the retention."""
        return utcnow().date() - timedelta(days=self.retention_days)

    async def make_ahead(self) -> None:
        """The partitions of today and the next days."""
        if self.table is Table.BY_DEVICE:
            return
        today = utcnow().date()
        await self.make(today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1))

    async def make(self, days: Iterable[date]) -> None:
        """The partitions of these days, unless they are known to exist."""
        missing = sorted({self.table.first_day(day) for day in days} - self.known_days)
        if not missing:
            return
        async with self.database.transaction() as connection:
            await connection.execute(LOCK_DDL, DDL_LOCK)
            for first in missing:
                name = self.table.name_of(first)
                if await connection.fetchval(EXISTS, name):
                    continue
                following = self.table.following(first)
                await connection.execute(
                    CREATE_PARTITION.format(
                        name=name,
                        table=self.table.parent,
                        first=first,
                        following=following,
                        options=self.table.options,
                    )
                )
        self.known_days.update(missing)

    async def drop_old(self) -> None:
        """Drop the partitions whose days all lie further back than the retention."""
        oldest = self.oldest_kept()
        async with self.database.transaction() as connection:
            rows = await connection.fetch(SELECT_PARTITIONS, self.table.parent)
        for name in (row["relname"] for row in rows):
            first = self.table.first_day_of(name)
            following = self.table.following(first)
            if following > oldest:
                continue
            try:
                if not await self._drop(name, first, following):
                    log.info("partition_kept", partition=name, error="not rolled up yet")
                    continue
            except (asyncpg.LockNotAvailableError, UnavailableError) as error:
                log.warning("partition_kept", partition=name, error=repr(error))
                continue
            self.known_days.discard(first)
            log.info("partition_dropped", partition=name)

    async def _drop(self, name: str, first: date, following: date) -> bool:
        """False if rollups still need it."""
        async with self.database.transaction() as connection:
            if self.table not in {Table.MINUTE, Table.HOUR} and await connection.fetchval(
                IS_DUE, midnight(first), midnight(following)
            ):
                return False
            # Readers of the parent would queue behind a drop that waits for its lock.
            await connection.execute(DROP_LOCK_TIMEOUT)
            await connection.execute(LOCK_DDL, DDL_LOCK)
            await connection.execute(DROP_PARTITION.format(name=name))
        return True


async def keep_up(tables: Iterable[Partitions]) -> None:
    """Make tomorrow's partitions today and drop old ones, until cancelled; one table after another,
    which would wait for each other with a connection each.
    """
    while True:
        for partitions in tables:
            await partitions.make_ahead()
            await partitions.drop_old()
        await asyncio.sleep(UPKEEP_SECONDS)


@contextmanager
def remaking_dropped(*partitions: Partitions) -> Iterator[None]:
    """Raise UnavailableError where a row has no partition: another instance dropped one that is
    remembered here. All are looked for, and made, at the next try.
    """
    try:
        yield
    except asyncpg.CheckViolationError as error:
        for forgotten in partitions:
            forgotten.known_days.clear()
        raise UnavailableError(f"a partition is missing: {error}") from error


def midnight(day: date) -> datetime:
    """A day's begin, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
