"""What is told of experiments' GPUs, against plain SQL over the stored samples."""

import random
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from schemas.executor.attempts import AttemptFinished
from schemas.telemetry.readings import GpuSampled
from shared.clock import utcnow
from tests.support.worlds.results import World, make_finished, make_sample

SECONDS = 300
EXPERIMENTS = 6
METRICS = ("utilization_percent", "memory_used_mb", "temperature_c", "power_draw_w")
NAMES = {"utilization_percent": "utilization"}

OF_METRIC = """
SELECT count({metric}) AS samples, min({metric})::float8 AS min, max({metric})::float8 AS max,
       avg({metric})::float8 AS mean,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY {metric}::float8) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY {metric}::float8) AS p95, count(*) AS ticks
FROM results.stored_sample JOIN results.device USING (device_no)
WHERE device_uuid = 'GPU-0' AND EXISTS (
    SELECT FROM unnest($1::timestamptz[], $2::timestamptz[]) AS measured (start_at, end_at)
    WHERE observed_at BETWEEN start_at AND end_at)
"""
# From each known power to the next, their mean; cut at the windows' edges.
JOULES = """
WITH known AS (
    SELECT extract(epoch FROM observed_at)::float8 AS at, power_draw_w AS watts,
           lead(extract(epoch FROM observed_at)::float8) OVER by_time AS next_at,
           lead(power_draw_w) OVER by_time AS next_watts
    FROM results.stored_sample JOIN results.device USING (device_no)
    WHERE device_uuid = 'GPU-0' AND power_draw_w IS NOT NULL
    WINDOW by_time AS (ORDER BY observed_at)),
cut AS (
    SELECT least(next_at, extract(epoch FROM end_at)::float8)
           - greatest(at, extract(epoch FROM start_at)::float8) AS seconds,
           (watts + next_watts) / 2 AS mean_watts
    FROM known, unnest($1::timestamptz[], $2::timestamptz[]) AS measured (start_at, end_at))
SELECT sum(seconds * mean_watts) FROM cut WHERE seconds > 0
"""


def make_samples(rng: random.Random, start: datetime) -> list[GpuSampled]:
    """One GPU, with ticks that are lost, readings that are unknown, and a restart of the agent."""

    def value(low: float, high: float) -> float | None:
        return None if rng.random() < 0.1 else rng.uniform(low, high)

    samples = []
    boot, sequence = UUID(int=1), 0
    for second in range(SECONDS):
        if second == SECONDS // 2:
            boot, sequence = UUID(int=2), 0
        sequence += 1
        if rng.random() < 0.1 or SECONDS // 2 <= second < SECONDS // 2 + 15:
            continue
        memory = value(0, 80_000)
        sample = make_sample(
            start + timedelta(seconds=second + rng.uniform(0, 0.5)),
            sequence,
            gpus=1,
            utilization_percent=value(0, 100),
            memory_used_mb=None if memory is None else round(memory),
            temperature_c=value(30, 90),
            power_draw_w=value(50, 700),
        )
        samples.append(replace(sample, boot_id=boot))
    return samples


def make_measured(rng: random.Random, start: datetime) -> AttemptFinished:
    """One to three windows apart from each other, within the time of the samples."""
    edges = sorted(rng.sample(range(20, SECONDS - 20), 2 * rng.randint(1, 3)))
    at = [start + timedelta(seconds=edge + 0.75) for edge in edges]
    return make_finished(list(zip(at[::2], at[1::2], strict=True)))


async def test_aggregates_equal_plain_sql(world: World) -> None:
    rng = random.Random(1)
    start = utcnow() - timedelta(minutes=20)
    samples = make_samples(rng, start)
    events = [make_measured(rng, start) for _ in range(EXPERIMENTS)]
    sent = [*samples, *rng.sample(samples, 60)]
    rng.shuffle(sent)
    connection = await asyncpg.connect(world.dsn)

    async def of_samples(query: str, event: AttemptFinished) -> dict[str, Any]:
        windows = [w.started_at for w in event.windows], [w.finished_at for w in event.windows]
        row = await connection.fetchrow(query, *windows)
        return dict(row) if row is not None else {}

    async with world.results():
        await world.publish(*sent)
        await world.stored(len(samples))
        await world.publish(*events)
        told = {event.experiment_id: await world.summarized(event) for event in events}

    for event in events:
        monitoring = told[event.experiment_id].gpu_monitoring
        stats, details = monitoring.gpu_stats["0"], monitoring.gpu_details["0"]
        for metric in METRICS:
            expected = await of_samples(OF_METRIC.format(metric=metric), event)
            name = NAMES.get(metric, metric)
            spread, percentiles = getattr(stats, name), getattr(details, name)
            assert (spread.min, spread.max) == (expected["min"], expected["max"])
            assert spread.mean == pytest.approx(expected["mean"])
            assert percentiles.p50 == pytest.approx(expected["p50"])
            assert percentiles.p95 == pytest.approx(expected["p95"])
            assert monitoring.sample_count == expected["ticks"]
        joules = (await of_samples(JOULES, event))["sum"]
        assert monitoring.energy_wh == pytest.approx(joules / 3600)
    await connection.close()
