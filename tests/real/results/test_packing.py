"""Samples of earlier hours take less room, and nobody who reads them sees a difference."""

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from services.results.domain.packed_spans import SPAN
from services.results.domain.rollup import HOUR, start_of
from services.results.samples.copied_rows import COLUMNS
from services.results.samples.packing import Packing
from services.results.samples.partitions import Partitions, Table, midnight
from services.results.samples.store import SampleStore
from shared.clock import utcnow
from tests.support.worlds.results import every_second, make_sample
from tests.support.worlds.sample_store import Store, ask, storm

READ = """
SELECT device_no, observed_at, boot_id, sequence, interval_seconds, utilization_percent,
    memory_total_mb, memory_used_mb, temperature_c, power_draw_w, power_limit_w, energy_mj,
    ecc_corrected, ecc_uncorrected, condition_no
FROM stored_sample ORDER BY 1, 2, 3, 4
"""
UNPACKED = "SELECT count(*) FROM tick"
SIZE = """
SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = $1::regclass
"""


@pytest.fixture
def packing(store: Store) -> Packing:
    return Packing(store.database, Partitions(store.database, Table.PACKED, 7))


async def read(store: Store) -> list[tuple[Any, ...]]:
    async with store.database.transaction() as connection:
        return [tuple(row) for row in await connection.fetch(READ)]


def earlier() -> datetime:
    """A whole hour that is over for good, and not on two days."""
    return start_of(utcnow(), HOUR).replace(hour=12) - timedelta(days=1)


async def test_packed_samples_read_as_they_were(store: Store, packing: Packing) -> None:
    start = earlier()
    await store.store(storm(random.Random(7), start, 1500))
    before = await read(store)
    chart = await store.series(start, start + HOUR, points=600)

    await packing.pack_old(start + 9 * HOUR)  # a clock of the storm goes ahead

    assert await ask(store, UNPACKED) == 0
    assert await read(store) == before != []
    assert await store.series(start, start + HOUR, points=600) == chart
    assert await ask(store, "SELECT max(cardinality(sequence)) FROM packed_sample") > 100


async def test_only_whole_spans_that_ended_are_packed(store: Store, packing: Packing) -> None:
    start = earlier()
    await store.store(every_second(start, 900))

    await packing.pack_old(start + 2 * SPAN + timedelta(seconds=77))

    assert await ask(store, "SELECT min(observed_at) FROM tick") == start + 2 * SPAN
    assert len(await read(store)) == 1800


async def test_late_sample_of_packed_span_is_rolled_up(store: Store, packing: Packing) -> None:
    start = earlier()
    samples = every_second(start, 600)
    late = samples.pop(200)
    await store.store(samples)
    await store.rollups.roll_up_ready(utcnow())
    await packing.pack_old(start + HOUR)

    await store.store([late])
    await store.rollups.roll_up_ready(utcnow())

    rolled_up = "SELECT sum(samples) FROM sample_minute"
    assert await ask(store, rolled_up) == len(await read(store)) == 1200
    await packing.pack_old(start + HOUR)
    assert len(await read(store)) == 1200
    assert await ask(store, "SELECT count(*) FROM packed_sample") == 2 * 2 + 2


async def test_two_that_pack_at_once_keep_each_sample_once(store: Store) -> None:
    start = earlier()
    await store.store(every_second(start, 1200))
    before = await read(store)
    both = [Packing(store.database, Partitions(store.database, Table.PACKED, 7)) for _ in "ab"]

    await asyncio.gather(*(each.pack_old(start + HOUR) for each in both))
    await both[0].pack_old(start + HOUR)

    assert await ask(store, UNPACKED) == 0
    assert await read(store) == before


async def test_samples_of_two_boots_stay_apart(store: Store, packing: Packing) -> None:
    start = earlier()
    other = replace(make_sample(start, 1, gpus=1), boot_id=UUID(int=9))
    await store.store([make_sample(start, 1, gpus=1), other])
    before = await read(store)

    await packing.pack_old(start + HOUR)

    assert await read(store) == before
    assert len(before) == 2


async def test_partition_dropped_by_another_is_made_again(store: Store, packing: Packing) -> None:
    start = earlier()
    await store.store(every_second(start, 60))
    await packing.pack_old(start + HOUR)
    name = Table.PACKED.name_of(start.date())
    async with store.database.transaction() as connection:
        await connection.execute(f"DROP TABLE {name}")
    await store.store([replace(make_sample(start, 1), boot_id=UUID(int=9))])

    with pytest.raises(Exception, match="a partition is missing"):
        await packing.pack_old(start + HOUR)
    await packing.pack_old(start + HOUR)

    assert await ask(store, UNPACKED) == 0
    assert len(await read(store)) == 2


async def test_packed_sample_takes_60_bytes_at_most(store: Store, packing: Packing) -> None:
    start = earlier()
    await store.store(every_second(start, 3600))

    await packing.pack_old(start + HOUR)

    assert await ask(store, SIZE, "packed_sample") < 60 * len(await read(store))


async def test_samples_of_an_earlier_release_are_read_and_dropped(
    store: Store,
) -> None:
    day = utcnow().date() - timedelta(days=8)
    columns = ", ".join(COLUMNS)
    await Partitions(store.database, Table.BY_DEVICE, 30).make([day])
    raw = Partitions(store.database, Table.RAW, 30)
    samples = SampleStore(store.database, raw, store.stored)
    await samples.store(storm(random.Random(7), midnight(day), 100))
    before = await read(store)
    async with store.database.transaction() as connection:
        await connection.execute(
            f"INSERT INTO sample_by_device ({columns}) SELECT {columns} FROM stored_sample"
        )
        await connection.execute("DELETE FROM tick")
    partitions = Partitions(store.database, Table.BY_DEVICE, 7)
    its_view = await ask(store, "SELECT count(*) FROM sample")

    await partitions.make_ahead()
    await partitions.drop_old()
    kept = await read(store)
    await store.rollups.roll_up_ready(utcnow())
    await partitions.drop_old()

    assert kept == before != []
    assert its_view == len(before)
    assert await read(store) == []
    left = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'sample_by_device'::regclass"
    assert await ask(store, left) == 0
