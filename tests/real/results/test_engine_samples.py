"""What engines told: stored once whatever happens on its way, shown as history, forgotten whole."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import convert
from msgspec.structs import replace

from schemas.base import subject_for
from schemas.executor.attempts import AttemptPhase
from schemas.executor.engine_samples import EngineReading, EngineSampled
from schemas.orchestrator.deletion import ExperimentDeleted
from schemas.results.engine_metrics import (
    EngineMetric,
    EngineSampleList,
    EngineSeriesView,
    GetEngineSeries,
    ListEngineSamples,
)
from schemas.task.benchmark import BenchmarkResult
from schemas.task.level_bound import Bound
from shared.benchmarks.metrics import RequestSample, level_result
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from shared.testing import eventually
from tests.support.worlds.results import NODE, World, make_finished, make_sample


def make_samples(count: int, **overrides: Any) -> list[EngineSampled]:  # any field
    start = utcnow() - timedelta(minutes=10)
    known: dict[str, Any] = {
        "node_id": NODE,
        "experiment_id": new_id(),
        "attempt_id": new_id(),
        "task_id": new_id(),
        "reservation_id": new_id(),
        "epoch": 3,
        "interval_seconds": 1.0,
        "phase": AttemptPhase.MEASURING,
        "engine": "vllm",
    }
    return [
        EngineSampled(
            sequence=number,
            observed_at=start + timedelta(seconds=number),
            reading=EngineReading(
                running=float(number % 4),
                kv_cache_percent=50.0,
                prefix_queried_tokens=100.0 * number,
                prefix_hit_tokens=25.0 * number,
                generation_tokens=8.0 * number * number,
            ),
            **known | overrides,
        )
        for number in range(count)
    ]


async def series(world: World, sample: EngineSampled, **query: Any) -> EngineSeriesView:
    found: EngineSeriesView = await world.ask(
        GetEngineSeries(experiment_id=sample.experiment_id, **query), EngineSeriesView
    )
    return found


async def listed(world: World, sample: EngineSampled) -> list[tuple[int, float | None]]:
    """Over several pages."""
    found: list[tuple[int, float | None]] = []
    query = ListEngineSamples(experiment_id=sample.experiment_id, limit=7)
    while True:
        page: EngineSampleList = await world.ask(query, EngineSampleList)
        found += zip(page.sequence, page.generation_tokens, strict=True)
        if page.next_cursor is None:
            return found
        query = ListEngineSamples(
            experiment_id=sample.experiment_id, limit=7, cursor=page.next_cursor
        )


async def test_unstorable_sample_delays_none_beside_it(world: World) -> None:
    first, hopeless, last = make_samples(3)
    far = msgspec.msgpack.decode(encode(hopeless))
    far["observed_at"] = "9999-12-31T23:59:59.999999-23:59"
    nested = b"\x81\xa1a" * 100_000 + b"\x00"
    async with world.results():
        for body in (encode(first), msgspec.msgpack.encode(far), nested, encode(last)):
            await world.client.jetstream().publish(subject_for(first), body)

        await stored(world, 2)
        await world.publish(make_sample(utcnow(), 1))
        await world.stored(2)

        assert [number for number, _ in await listed(world, first)] == [0, 2]


async def stored(world: World, rows: int) -> None:
    async def are_there() -> bool:
        return await world.count("engine_sample") == rows

    await eventually(are_there, what=f"{rows} stored samples of engines")


async def test_each_sample_is_stored_once(world: World) -> None:
    samples = make_samples(20)
    lost = samples.pop(11)
    late = [*samples, *samples[3:9]]
    random.Random(1).shuffle(late)

    async with world.results():
        await world.publish(*late)
        await stored(world, len(samples))
        view = await series(world, lost)
        few = await series(world, lost, points=3)
        of_two = await series(
            world, lost, start_at=samples[4].observed_at, end_at=samples[6].observed_at
        )
        rows = await listed(world, lost)

    assert rows == [(each.sequence, each.reading.generation_tokens) for each in samples]
    assert (view.attempt_id, view.engine) == (lost.attempt_id, "vllm")
    assert view.series[EngineMetric.PREFIX_HIT_PERCENT][0].mean == pytest.approx(25)
    assert EngineMetric.ACCEPT_LENGTH not in view.series
    rates = view.series[EngineMetric.GENERATION_TOKENS_PER_S]
    # Over the gap the rate is that of two seconds.
    want = [8.0 * (2 * n - 1) for n in range(1, 20) if n not in {11, 12}]
    assert [point.mean for point in rates if point.mean != 8.0 * (12**2 - 10**2) / 2] == want
    assert [len(found) for found in few.series.values()] == [3] * len(few.series)
    running = few.series[EngineMetric.RUNNING]
    assert {(point.min, point.max) for point in running} == {(0.0, 3.0)}
    assert [point.mean for point in of_two.series[EngineMetric.RUNNING]] == [0.0, 1.0]


async def test_newest_attempt_is_shown(
    world: World,
) -> None:
    old, other = make_samples(3), make_samples(1, engine=None)[0]
    again = make_samples(2, experiment_id=old[0].experiment_id, attempt_id=new_id(), epoch=4)

    async with world.results():
        nothing = await series(world, old[0])
        await world.publish(*again, *old, other)
        await stored(world, 6)
        newest = await series(world, old[0])
        silent = await series(world, other)

    assert (nothing.attempt_id, nothing.series) == (None, {})
    assert newest.attempt_id == again[0].attempt_id
    assert (silent.attempt_id, silent.engine) == (other.attempt_id, None)


async def test_deleted_experiment_stays_forgotten(world: World) -> None:
    samples, kept = make_samples(3), make_samples(2)
    async with world.results():
        await world.publish(*samples, *kept)
        await stored(world, 5)
        await world.publish(
            ExperimentDeleted(
                message_id=new_id(),
                occurred_at=utcnow(),
                revision=1,
                task_id=samples[0].task_id,
                experiment_id=samples[0].experiment_id,
                namespace="default",
                ordinal=1,
            )
        )
        await stored(world, 2)

        await world.publish(*samples, *make_samples(1))
        await stored(world, 3)

        assert await listed(world, samples[0]) == []


async def test_levels_tell_what_bounded_them(world: World) -> None:
    start = utcnow() - timedelta(minutes=2)
    request = RequestSample(ttft=0.02, e2e_latency=0.2, num_input_tokens=10, num_output_tokens=20)
    levels = tuple(
        level_result(
            scenario="D(10,20)",
            num_concurrency=8,
            started_at=start + timedelta(seconds=begins),
            run_duration=9.5,
            samples=[request] * 50,
            error_codes={},
        )
        for begins in (0, 10, 20, 40)
    )
    plain = make_finished([(start, start + timedelta(seconds=50))])
    assert plain.benchmark is not None
    event = replace(plain, benchmark=replace(plain.benchmark, levels=levels))
    told = make_samples(30, attempt_id=event.attempt_id, experiment_id=event.experiment_id)
    told = [
        replace(
            each,
            observed_at=start + timedelta(seconds=each.sequence),
            reading=EngineReading(running=8.0, waiting=0.0 if each.sequence < 10 else 9.0),
        )
        for each in told
    ]
    slowed = [
        make_sample(
            start + timedelta(seconds=second),
            second,
            throttle_reasons=("sw_power_cap",) if 20 <= second < 30 else ("gpu_idle",),
        )
        for second in range(60)
    ]

    async with world.results():
        await world.publish(*told, *slowed, event)
        await stored(world, len(told))
        view = await world.complete(event, ticks=51)

    found = convert(view.benchmark, BenchmarkResult).levels
    assert [level.bound and level.bound.bound for level in found] == [
        Bound.DECODE,
        Bound.QUEUE,
        Bound.POWER,
        None,
    ]
    assert found[1].bound is not None
    assert found[1].bound.evidence == "9.0 requests wait while 8.0 run, at most 8 at once"
