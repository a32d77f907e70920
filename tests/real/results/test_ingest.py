"""Every sample is stored once and rolled up exactly, whatever happens on its way."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from schemas.results.series import SeriesPoint
from schemas.telemetry.readings import GpuSampled
from services.results import rollups
from services.results.domain.rollup import HOUR, MINUTE, start_of
from services.results.samples.copied_rows import COLUMNS
from services.results.samples.partitions import Partitions, Table, midnight
from services.results.samples.store import SampleStore
from services.results.settings import ResultsSettings
from services.results.summaries import summary_rows
from shared.clock import utcnow
from shared.postgres.database import Connection
from shared.settings import SettingsError
from shared.testing import eventually
from tests.support.worlds.results import (
    BOOT,
    World,
    every_second,
    make_finished,
    make_sample,
)
from tests.support.worlds.sample_store import (
    SEVEN_DAYS,
    CrashError,
    Store,
    ask,
    storm,
)


def expected_points(
    values: Iterable[tuple[datetime, float]], points: Iterable[SeriesPoint], end: datetime
) -> list[tuple[datetime, float, float, float]]:
    """The same by plain arithmetic, in the buckets of an answer."""
    starts = [point.at for point in points]
    buckets: dict[datetime, list[float]] = defaultdict(list)
    for at, value in values:
        assert starts[0] <= at < end
        buckets[max(start for start in starts if start <= at)].append(value)
    return [(at, min(v), max(v), sum(v) / len(v)) for at, v in sorted(buckets.items())]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
async def test_series_equal_samples_despite_disorder(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    start = start_of(utcnow(), HOUR) - timedelta(hours=5)
    ticks = storm(rng, start, 900)
    rng.shuffle(ticks)
    batches = [ticks[at : at + 60] for at in range(0, len(ticks), 60)]
    batches += rng.sample(batches, 10)
    rng.shuffle(batches)

    for batch in batches:
        if rng.random() < 0.2:
            store.crashes = True
            with contextlib.suppress(CrashError):
                await store.store(batch)
            store.crashes = False
        await store.store([*batch, *rng.sample(batch, 5)])
        if rng.random() < 0.3:
            await store.rollups.roll_up_ready(start + timedelta(seconds=rng.randrange(4000)))
        begin = start + timedelta(milliseconds=rng.randrange(3_000_000))
        end = begin + timedelta(milliseconds=rng.randrange(1, 12_000_000))
        await check(store, begin, end, points=rng.choice([1, 2, 5, 100]))
    for settled in (start + HOUR, utcnow()):
        await store.rollups.roll_up_ready(settled)
        await check(store, start, start + timedelta(hours=4), points=4)
        await check(store, start + timedelta(seconds=1.5), start + HOUR, points=30)

    assert await ask(store, "SELECT count(*) FROM stored_sample") == 2 * len(store.given)
    assert await ask(store, "SELECT count(*) FROM agent_boot WHERE due != '{}'") == 0
    assert await ask(store, "SELECT sum(samples) FROM sample_hour") == 2 * len(store.given)


async def check(store: Store, start: datetime, end: datetime, *, points: int) -> None:
    found = await store.series(start, end, points=points)
    values = store.values(start, end)
    assert set(values) <= set(found)
    for device, of_device in found.items():
        assert len(of_device) <= points
        assert all(a.at + store.bucket <= b.at or a.at == start for a, b in pairwise(of_device))
        assert [(p.at, p.min, p.max, p.mean) for p in of_device] == expected_points(
            values.get(device, []), of_device, end
        )


async def test_missing_ticks_are_known_until_they_come(store: Store) -> None:
    ticks = every_second(start_of(utcnow(), MINUTE), 10)
    ticks[1] = replace(ticks[1], gpus=())  # a driver that answers nothing
    missing = "SELECT array_agg(ticks ORDER BY ticks) FROM missing_tick"

    await store.store([*ticks[:3], *ticks[5:8]])
    await store.store(ticks[9:])
    before = await ask(store, missing)
    await store.store(ticks[3:5])
    after = await ask(store, missing)

    assert [(gap.lower, gap.upper) for gap in before] == [(3, 5), (8, 9)]
    assert [(gap.lower, gap.upper) for gap in after] == [(8, 9)]


async def test_late_sample_recomputes_a_rollup(store: Store) -> None:
    start = start_of(utcnow(), HOUR) - timedelta(hours=2)
    ticks = every_second(start, 7200)
    late = ticks.pop(30)
    await store.store(ticks[:3600])
    await store.store(ticks[3600:])
    await store.rollups.roll_up_ready(utcnow())

    await store.store([late])
    before = await store.series(start, start + timedelta(hours=2), points=1)
    due = await ask(store, "SELECT due FROM agent_boot")
    await store.rollups.roll_up_ready(utcnow())
    after = await store.series(start, start + timedelta(hours=2), points=1)

    assert due == [start]
    assert before == after
    assert (
        await ask(store, "SELECT array_agg(samples ORDER BY at, device_no) FROM sample_hour")
        == [3600] * 4
    )


async def test_boot_during_a_rollup_is_rolled_up_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = start_of(utcnow(), HOUR) - HOUR
    late = make_sample(start + timedelta(seconds=30), 0, power_draw_w=8.0)
    late = replace(late, boot_id=UUID(int=8))
    await store.store([make_sample(start + timedelta(seconds=s), s) for s in range(20)])
    roll_up = rollups._roll_up  # noqa: SLF001  # interrupted between two of its statements

    async def roll_up_while_another_boot_begins(connection: Connection, *due: Any) -> None:
        monkeypatch.setattr(rollups, "_roll_up", roll_up)
        execute = connection.execute

        class Interrupted:
            fetch, fetchval = connection.fetch, connection.fetchval

            async def execute(self, statement: str, *args: object) -> str:
                if statement == rollups.UPDATE_BOOTS:
                    await store.store([late])
                return await execute(statement, *args)

        await roll_up(cast(Connection, Interrupted()), *due)

    monkeypatch.setattr(rollups, "_roll_up", roll_up_while_another_boot_begins)
    await store.rollups.roll_up_ready(utcnow())

    await check(store, start, start + HOUR, points=1)


async def test_samples_do_not_wait_for_hours_that_are_computed(store: Store) -> None:
    start = start_of(utcnow(), HOUR) - HOUR
    first, *others = (make_sample(start + timedelta(seconds=s), s) for s in range(70))
    await store.store([first])
    waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"

    async with asyncio.TaskGroup() as tasks, store.database.transaction() as ledger:
        await ledger.execute("INSERT INTO ledger_due VALUES ($1, $2)", first.node_id, start)
        tasks.create_task(store.rollups.roll_up_ready(utcnow()))

        async def is_waiting() -> bool:
            return bool(await ask(store, waits))

        await eventually(is_waiting, what="a rollup that waits for the hour")
        await asyncio.wait_for(store.store(others), 5)

    await check(store, start, start + HOUR, points=1)


async def test_what_no_sample_has_any_more_is_forgotten(store: Store) -> None:
    now = utcnow()
    for sequence, reason in enumerate(("of_an_experiment", "forgotten", "in_use")):
        await store.store([make_sample(now, sequence, gpus=1, throttle_reasons=(reason,))])
    async with store.database.transaction() as connection:
        await summary_rows.insert_attempt(connection, make_finished([(now, now)]), now)
        await connection.execute(
            f"INSERT INTO experiment_sample (attempt_id, {', '.join(COLUMNS)})"
            f" SELECT attempt_id, {', '.join(COLUMNS)} FROM stored_sample, attempt"
            " WHERE sequence = 0"
        )
        await connection.execute("UPDATE condition SET used_at = now() - interval '9 days'")
    again = SampleStore(store.database, store.raw, store.stored)
    await again.store([make_sample(now, 3, gpus=1, throttle_reasons=("in_use",))])

    await store.rollups.forget(now - SEVEN_DAYS)

    facts = await ask(store, "SELECT string_agg(facts, ' ' ORDER BY condition_no) FROM condition")
    assert [reason in facts for reason in ("of_an_experiment", "forgotten", "in_use")] == [
        *(True, False, True)
    ]


async def test_future_clock_makes_no_partition(store: Store) -> None:
    ahead = [make_sample(utcnow() + timedelta(days=days), days) for days in (1, 400, 9_000)]

    await store.store(ahead)

    partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tick'::regclass"
    assert await ask(store, partitions) == 1
    assert await ask(store, "SELECT count(*) FROM stored_sample") == 2


async def test_raw_samples_wait_for_their_rollup(
    store: Store,
) -> None:
    day = utcnow().date() - timedelta(days=8)
    fresh = Partitions(store.database, Table.RAW, 30)
    old = SampleStore(store.database, fresh, store.stored)
    await old.store(every_second(midnight(day), 90))
    rows = "SELECT (SELECT count(*) FROM stored_sample), (SELECT sum(samples) FROM sample_minute)"

    async def counts() -> tuple[int, int | None]:
        async with store.database.transaction() as connection:
            [(samples, rolled_up)] = await connection.fetch(rows)
            return samples, rolled_up

    await store.raw.drop_old()
    kept = await counts()
    await store.rollups.roll_up_ready(utcnow())
    await store.raw.drop_old()
    rolled_up = await counts()
    # Samples of a clock that is far behind change no rollup of a day that is gone.
    await store.store([replace(make_sample(midnight(day), 1), boot_id=UUID(int=9))])
    await store.rollups.roll_up_ready(utcnow())

    assert kept == (180, None)
    assert rolled_up == (0, 180)
    assert await counts() == (2, 180)


async def test_hours_are_dropped_by_whole_months(
    store: Store,
) -> None:
    today = utcnow().date()
    hours = Partitions(store.database, Table.HOUR, 10)
    first = today.replace(day=1)
    long_ago = first - timedelta(days=40)

    await hours.make([today, today, long_ago, first - timedelta(days=1)])
    await hours.drop_old()

    assert first in hours.known_days
    assert Table.HOUR.first_day(long_ago) not in hours.known_days
    assert Table.HOUR.following(first) > today


async def test_chart_of_seven_days_reads_few_partitions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utcnow()
    start = now - SEVEN_DAYS
    for day in range(8):
        at = start + timedelta(days=day)
        batch = [
            replace(make_sample(at - timedelta(minutes=m), 100 * day - m + 50), boot_id=BOOT)
            for m in range(-10, 30)
            if at - timedelta(minutes=m) <= now
        ]
        await store.store(batch)
    await store.rollups.roll_up_ready(now - timedelta(minutes=2))
    plans: list[str] = []
    fetch = asyncpg.pool.PoolConnectionProxy.fetch

    async def explained(self: Any, query: str, *args: object) -> Any:
        if query.lstrip().startswith("SELECT device_no"):
            text = f"EXPLAIN (ANALYZE, COSTS OFF) {query}"
            plans.append("\n".join(row[0] for row in await fetch(self, text, *args)))
        return await fetch(self, query, *args)

    monkeypatch.setattr(asyncpg.pool.PoolConnectionProxy, "fetch", explained)
    found = await store.series(start, now)

    read = {
        day
        for day in (start.date() + timedelta(days=n) for n in range(8))
        for plan in plans
        for line in plan.splitlines()
        if Table.RAW.name_of(day) in line and "never executed" not in line
    }
    assert all(found.values())
    assert len(plans) == 2
    assert read <= {start.date(), now.date(), (now - timedelta(minutes=3)).date()}


def identity_of(tick: GpuSampled) -> tuple[datetime, UUID, int]:
    return (tick.observed_at, tick.boot_id, tick.sequence)


async def test_the_service_rolls_up_by_itself(world: World) -> None:
    start = start_of(utcnow(), MINUTE) - timedelta(minutes=3)

    async with world.results():
        await world.publish(*every_second(start, 130), *every_second(start, 130))

        async def is_rolled_up() -> bool:
            return await world.count("sample_minute WHERE samples = 60") == 4

        await eventually(is_rolled_up, what="two whole minutes of two GPUs")
        assert await world.count("sample_hour") > 0


async def test_what_has_piled_up_is_stored_without_lingering(world: World) -> None:
    async with world.results():
        pass  # makes the stream and its consumer
    ticks = every_second(utcnow() - timedelta(minutes=10), 520)  # a batch of 500, and some more
    await world.publish(*ticks)

    async with world.results(batch_linger_seconds=300.0):

        async def is_stored() -> bool:
            return await world.count("tick") == len(ticks)

        await eventually(is_stored, what="the last batch, which is not full")


def test_rollups_are_kept_at_least_as_long() -> None:
    with pytest.raises(SettingsError, match="retention_days <= minutes_retention_days"):
        ResultsSettings(postgres_dsn="postgresql://", minutes_retention_days=3)
