"""A week's history of a fleet."""

import json
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from schemas.gpus.kinds import GpuKind
from schemas.results.series import GetSeries, SeriesMetric
from services.results import history
from services.results.domain.rollup import HOUR, Level, start_of
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table, midnight
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from shared.postgres.database import Connection, Database
from tests.support.worlds.results import make_sample

DAYS = 7


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


class Explaining:
    """A connection that notes from the plans which partitions of raw samples were read at all."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.raw_partitions: set[str] = set()

    async def fetch(self, statement: str, *arguments: object) -> Any:
        plan = await self.connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *arguments
        )
        self._note(json.loads(plan)[0]["Plan"])
        return await self.connection.fetch(statement, *arguments)

    def _note(self, node: dict[str, Any]) -> None:
        name = node.get("Relation Name", "")
        if name.startswith("tick_2") and node["Actual Loops"]:
            self.raw_partitions.add(name)
        for inner in node.get("Plans", ()):
            self._note(inner)


async def test_spike_survives_a_week_of_rollups(
    postgres_dsn: str,
) -> None:
    end = start_of(utcnow(), HOUR) - timedelta(minutes=20)
    start = end - timedelta(days=DAYS)
    spike_at = start + timedelta(days=3, hours=6, seconds=20)
    times = [start + timedelta(hours=6 * n) for n in range(4 * DAYS)]
    samples = [
        replace(
            make_sample(at, n, utilization_percent=100.0 if at == spike_at else 20.0), node_id=node
        )
        for node in ("a", "b")
        for n, at in enumerate(sorted([*times, spike_at]))
    ]
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    store = SampleStore(database, Partitions(database, Table.RAW, 8), nothing)
    rollups = Rollups(
        database,
        Partitions(database, Table.MINUTE, 90),
        Partitions(database, Table.HOUR, 730),
        timedelta(days=8),
    )
    mig = [
        replace(each, node_id="m", gpus=(replace(each.gpus[0], uuid="MIG-1"),))
        for each in samples[: len(samples) // 2]
    ]
    await store.store([*samples, *mig])
    await rollups.roll_up_ready(utcnow())
    asked = GetSeries(
        metric=SeriesMetric.UTILIZATION_PERCENT, start_at=start, end_at=end, points=50
    )
    kept = dict.fromkeys(Level, midnight(start.date()))

    async with database.transaction() as plain:
        await plain.execute(
            "INSERT INTO device_holding (reservation_id, device_no, hundredths, granted_at)"
            " SELECT gen_random_uuid(), device_no, 50, $1 FROM device WHERE device_uuid = 'GPU-1'",
            start + timedelta(days=1),
        )
        connection: Any = Explaining(plain)
        view = await history.series(connection, asked, kept)
        one = await history.series(connection, replace(asked, gpu_model="nvidia a100"), kept)
        none = await history.series(connection, replace(asked, gpu_model="H100"), kept)
        kinds = {
            kind: await history.series(connection, replace(asked, kind_of_gpu=kind), kept)
            for kind in GpuKind
        }
        read_for_whole_minutes = set(connection.raw_partitions)
        cut = replace(asked, start_at=start + timedelta(seconds=10))
        await history.series(connection, cut, kept)
    await database.close()

    assert len(view.devices) == 5
    for device in view.devices:
        assert len(device.points) <= 50
        [spiked] = [point for point in device.points if point.max == 100.0]
        assert spiked.at <= spike_at < spiked.at + timedelta(seconds=view.bucket_seconds)
        assert {point.min for point in device.points} == {20.0}
    assert (one, none.devices) == (view, ())
    assert {kind: [d.device_uuid for d in of_kind.devices] for kind, of_kind in kinds.items()} == {
        GpuKind.PGPU: ["GPU-0", "GPU-1"] * 2,
        GpuKind.MIG: ["MIG-1"],
        GpuKind.SHARED: ["GPU-1"] * 2,
        **{kind: [] for kind in (GpuKind.VGPU, GpuKind.MPS, GpuKind.TIME_SLICE)},
    }
    assert read_for_whole_minutes == set()
    assert connection.raw_partitions == {Table.RAW.name_of(start.date())}  # of the cut minute
