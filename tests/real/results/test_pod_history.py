"""Past use by pod, whatever became of the devices since."""

import statistics
from datetime import timedelta

import pytest
from msgspec.structs import replace

from schemas.results.series import GetSeries, SeriesMetric, SeriesPoint
from schemas.telemetry.readings import GpuPod, GpuSampled
from services.results import history
from services.results.domain.rollup import HOUR, Level, start_of
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.partitions import Partitions, Table
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from shared.postgres.database import Connection, Database
from tests.support.worlds.results import make_sample


async def nothing(_: Connection, __: object) -> None:
    """Is called with what is stored."""


async def test_pod_history_covers_its_minutes(
    postgres_dsn: str,
) -> None:
    first, second, other = (
        GpuPod(namespace, pod, "c")
        for namespace, pod in (("mine", "a-0"), ("mine", "b-0"), ("yours", "a-0"))
    )
    start = start_of(utcnow(), HOUR) - timedelta(hours=3)
    # By GPU: whose it is in each ten minutes; None: kubelet was not asked.
    shares: list[list[tuple[GpuPod, ...] | None]] = [
        [(first,), (first,), None, (second,), (first, second), ()],
        [(other,), (first,), (first,), (), None, (other,)],
    ]
    batch: list[GpuSampled] = []
    for at in range(0, 3600, 10):
        sample = make_sample(start + timedelta(seconds=at), at)
        gpus = tuple(
            replace(gpu, power_draw_w=float(at + gpu.index), pods=whose[at // 600])
            for gpu, whose in zip(sample.gpus, shares, strict=True)
        )
        batch.append(replace(sample, gpus=gpus))
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    samples = SampleStore(database, Partitions(database, Table.RAW, 7), nothing)
    rollups = Rollups(
        database,
        Partitions(database, Table.MINUTE, 90),
        Partitions(database, Table.HOUR, 730),
        timedelta(days=7),
    )
    for part in (batch[200:], batch[:220]):
        await samples.store(part)
        await rollups.roll_up_ready(utcnow())

    async def series(points: int, **query: str) -> dict[str, tuple[SeriesPoint, ...]]:
        asked = GetSeries(
            metric=SeriesMetric.POWER_DRAW_W,
            start_at=start,
            end_at=start + timedelta(hours=1),
            points=points,
            **query,  # type: ignore[arg-type]
        )
        kept = dict.fromkeys(Level, start - HOUR)
        async with database.transaction() as connection:
            view = await history.series(connection, asked, kept)
        return {device.device_uuid: device.points for device in view.devices}

    asked: list[tuple[dict[str, str], set[GpuPod]]] = [
        ({"pod_namespace": "mine", "pod": "a-0"}, {first}),
        ({"pod_namespace": "mine"}, {first, second}),
        ({"pod": "a-0"}, {first, other}),
        ({"pod": "c-0"}, set()),
    ]
    for query, wanted in asked:
        expected: dict[str, list[float]] = {}
        for gpu, whose in enumerate(shares):
            minutes = [m for m in range(60) if wanted & set(whose[m // 10] or ())]
            # The means of six samples each.
            means = [statistics.fmean(60 * m + s + gpu for s in range(0, 60, 10)) for m in minutes]
            if means:
                expected[f"GPU-{gpu}"] = means
        for points in (60, 3600):  # by minutes, and by samples
            found = await series(points, **query)
            assert found.keys() == expected.keys()
            for device, seen in found.items():
                per_minute = len(seen) // len(expected[device])
                means = [
                    statistics.fmean(point.mean for point in seen[at : at + per_minute])
                    for at in range(0, len(seen), per_minute)
                ]
                assert means == pytest.approx(expected[device])
                assert per_minute == (1 if points == 60 else 6)
    everything = await series(60)
    assert [len(points) for points in everything.values()] == [60, 60]
    await database.close()
