"""A store of samples with its rollups, by itself, and what is told to it."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from schemas.results.series import GetSeries, SeriesMetric, SeriesPoint
from schemas.telemetry.readings import GpuReading, GpuSampled
from services.results import history
from services.results.domain.rollup import Level
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table
from services.results.samples.store import SampleStore
from shared.postgres.database import Connection, Database
from tests.support.worlds.results import make_sample

METRIC: Final = SeriesMetric.POWER_DRAW_W
SEVEN_DAYS: Final = timedelta(days=7)
Tick = tuple[str, UUID, int]


class CrashError(Exception):
    """A process ends before its commit."""


@dataclass
class Store:
    """A store of samples whose process may end before any commit, and what it was given."""

    database: Database
    crashes: bool = False
    given: dict[Tick, GpuSampled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.raw = Partitions(self.database, Table.RAW, 7)
        self.samples = SampleStore(self.database, self.raw, self.stored)
        self.rollups = Rollups(
            self.database,
            Partitions(self.database, Table.MINUTE, 90),
            Partitions(self.database, Table.HOUR, 730),
            SEVEN_DAYS,
        )

    async def stored(self, _: Connection, __: object) -> None:
        if self.crashes:
            raise CrashError

    async def store(self, batch: list[GpuSampled]) -> None:
        await self.samples.store(batch)
        for sample in batch:
            self.given.setdefault((sample.node_id, sample.boot_id, sample.sequence), sample)

    async def series(
        self, start: datetime, end: datetime, **query: Any
    ) -> dict[str, tuple[SeriesPoint, ...]]:
        kept = dict.fromkeys(Level, datetime.min.replace(tzinfo=UTC))
        async with self.database.transaction() as connection:
            view = await history.series(
                connection, GetSeries(metric=METRIC, start_at=start, end_at=end, **query), kept
            )
        self.bucket = timedelta(seconds=view.bucket_seconds)
        return {f"{d.node_id}/{d.device_uuid}": d.points for d in view.devices}

    def values(self, start: datetime, end: datetime) -> dict[str, list[tuple[datetime, float]]]:
        """What was given, by device."""
        found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
        for sample in self.given.values():
            if start <= sample.observed_at < end:
                for gpu in sample.gpus:
                    if gpu.power_draw_w is not None:
                        found[f"{sample.node_id}/{gpu.uuid}"].append(
                            (sample.observed_at, gpu.power_draw_w)
                        )
        return found


async def ask(store: Store, query: str, *args: object) -> Any:
    async with store.database.transaction() as connection:
        return await connection.fetchval(query, *args)


def storm(rng: random.Random, start: datetime, seconds: int) -> list[GpuSampled]:
    """Ticks of two nodes with gaps, unknown readings, restarts of an agent and steps of a clock."""
    found = []
    for node in ("node-a", "node-b"):
        boot, sequence, clock = UUID(int=rng.getrandbits(100)), 0, start
        for _ in range(seconds):
            sequence += 1
            clock += timedelta(seconds=1)
            if rng.random() < 0.01:
                boot, sequence = UUID(int=rng.getrandbits(100)), 0
            if rng.random() < 0.01:
                clock += timedelta(seconds=rng.choice([-90, -1, 30, 600]))
            if rng.random() < 0.05:
                continue
            gpus = tuple(
                GpuReading(
                    uuid=f"GPU-{i}",
                    index=i,
                    # sums of these are exact, in any order
                    power_draw_w=None if rng.random() < 0.1 else rng.randrange(3200) / 8,
                )
                for i in range(2)
            )
            found.append(
                replace(make_sample(clock, sequence), node_id=node, boot_id=boot, gpus=gpus)
            )
    return found
