"""A week's history of a fleet."""

from datetime import timedelta

from msgspec.structs import replace

from schemas.results import GetSeries, SeriesMetric
from services.results import history
from services.results.domain.rollup import HOUR, Level, start_of
from services.results.migrations import MIGRATIONS
from services.results.partitions import Partitions, Table, midnight
from services.results.rollups import Rollups
from services.results.samples import SampleStore
from shared.clock import utcnow
from shared.postgres.database import Connection, Database
from tests.support.worlds.results import make_sample

DAYS = 7


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


async def test_a_spike_survives_a_week_and_devices_are_chosen_by_their_model(
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
    await store.store(samples)
    await rollups.roll_up_ready(utcnow())
    asked = GetSeries(
        metric=SeriesMetric.UTILIZATION_PERCENT, start_at=start, end_at=end, points=50
    )
    kept = dict.fromkeys(Level, midnight(start.date()))

    async with database.transaction() as connection:
        view = await history.series(connection, asked, kept)
        one = await history.series(connection, replace(asked, gpu_model="nvidia a100"), kept)
        none = await history.series(connection, replace(asked, gpu_model="H100"), kept)
    await database.close()

    assert len(view.devices) == 4
    for device in view.devices:
        assert len(device.points) <= 50
        [spiked] = [point for point in device.points if point.max == 100.0]
        assert spiked.at <= spike_at < spiked.at + timedelta(seconds=view.bucket_seconds)
        assert {point.min for point in device.points} == {20.0}
    assert (one, none.devices) == (view, ())
