"""What storing and reading the GPUs' samples costs.

`make bench NAME=results`; `python -m tests.benchmarks.results 1` keeps one day of raw samples
instead of seven. 64 GPUs on 8 nodes. Storing: a stream full of ticks is drained by the service,
and the same samples go by bare COPY into a table with a row of each; they take turns, and the best
round of each counts, as on a host that does other work as well; then all of it is packed. Reading:
raw samples for the days asked for, packed but for the last hour, and rollups for seven, made inside
Postgres.

The last line is one JSON object:

`ingest_samples_per_s`: from the stream into committed rows.
`ingest_over_copy`: over bare COPY of the same samples into a table with a row and a key of each.
`cores_at_10000_gpus`: processor time of the service and of Postgres for 10,000 samples.
`packing_cores_at_10000_gpus`: what packing them an hour later takes, beside that.
`chart_7d_p99_ms`, `chart_worst_p99_ms`: 64 GPUs over 7 days, and the slowest preset.
`aggregate_ms`: an experiment's summaries computed from its stored samples, 8 GPUs for 2 minutes.
`bytes_per_sample`: of a day's packed partition with its indexes; `unpacked_bytes_per_sample`: of
the last hour's.
"""

import asyncio
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import psutil
import uvloop

from schemas.base import subject_for
from schemas.gpus.device_grant import DeviceGrant
from schemas.results.series import GetSeries, SeriesMetric
from schemas.telemetry.readings import GpuReading, GpuSampled, Source
from services.results import history
from services.results.app import create_service
from services.results.domain.monitoring import MEASURING, Run, summarize
from services.results.domain.reading import Reading, Span
from services.results.domain.rollup import HOUR, Level
from services.results.migrations import MIGRATIONS
from services.results.samples.copied_rows import COLUMNS
from services.results.samples.packing import PACK_AFTER, Packing
from services.results.samples.partitions import Partitions, Table, midnight
from services.results.settings import ResultsSettings
from shared.clock import utcnow
from shared.messaging.codec import encode
from shared.postgres.database import Database
from shared.testing import NatsServer, PostgresServer, eventually, short_directory

NODES: Final = 8
GPUS_PER_NODE: Final = 8
DEVICES: Final = NODES * GPUS_PER_NODE
DAYS: Final = 7
TICKS: Final = 2000  # of each node and round
ROUNDS: Final = 3
QUERIES: Final = 100
PRESETS: Final = {
    "30m": timedelta(minutes=30),
    "1h": HOUR,
    "6h": 6 * HOUR,
    "12h": 12 * HOUR,
    "24h": 24 * HOUR,
    "2d": timedelta(days=2),
    "7d": timedelta(days=7),
}

# Of a busy GPU, a value differs from the one before it; the memory of an engine stays.
FILL: Final = """
INSERT INTO {partition} (set_id, observed_at, boot_id, sequence, interval_seconds, floats, integers)
SELECT set_id, observed_at, '00000000-0000-0000-0000-000000000007', seconds, 1,
       array_agg(ARRAY[floor(random() * 101), 40 + floor(random() * 30),
                       floor(random() * 7000) / 10, 700] ORDER BY place),
       array_agg(ARRAY[80000, 20000 + device_no, seconds * 300000, 0, 0, 1] ORDER BY place)
FROM (SELECT set_id, at + random() * interval '20 ms' AS observed_at,
             extract(epoch FROM at)::bigint AS seconds
      FROM (SELECT DISTINCT set_id FROM device_place) AS known,
           generate_series($1::timestamptz, $2::timestamptz - interval '1 s', '1 s') AS at) AS ticks
JOIN device_place USING (set_id)
GROUP BY set_id, observed_at, seconds ORDER BY seconds, set_id
"""
SIZE: Final = "SELECT pg_total_relation_size($1::regclass)"
_OF_METRICS: Final = ", ".join(f"60 * {n}, 10, 400, 60.0 * {n} * 200" for n in ("$3",) * 4)
FILL_ROLLUPS: Final = """
INSERT INTO {table} SELECT device_no, at, 60 * $3, 60.0 * $3, {metrics}
FROM generate_series($1::timestamptz, $2::timestamptz - interval '1 s', {step}) AS at, device
"""


@dataclass(frozen=True)
class Round:
    """Samples stored per second, by the service and by bare COPY; the cores that 10,000/s take."""

    ours: float
    bare: float
    cores: float


def ticks_of(round_no: int, start: datetime, ticks: int) -> list[GpuSampled]:
    rng = random.Random(round_no)
    return [
        GpuSampled(
            node_id=f"node-{node}",
            boot_id=UUID(int=1000 + round_no),
            sequence=tick,
            observed_at=start + timedelta(seconds=tick),
            interval_seconds=1.0,
            source=Source.NVML,
            gpus=tuple(
                GpuReading(
                    uuid=f"GPU-{node}-{index}",
                    index=index,
                    utilization_percent=float(rng.randrange(101)),
                    memory_total_mb=80_000,
                    memory_used_mb=rng.randrange(80_000),
                    temperature_c=60.0,
                    power_draw_w=rng.randrange(7000) / 10,
                    power_limit_w=700.0,
                    energy_mj=tick * 300_000,
                    throttle_reasons=("gpu_idle",) if rng.random() < 0.1 else (),
                    ecc_corrected=0,
                    ecc_uncorrected=0,
                    processes=(),
                )
                for index in range(GPUS_PER_NODE)
            ),
        )
        for tick in range(ticks)
        for node in range(NODES)
    ]


def cpu_seconds() -> float:
    """Of this process and of every Postgres process below it."""
    own = psutil.Process()
    processes = [own, *own.children(recursive=True)]
    return sum(
        sum(process.cpu_times()[:2])
        for process in processes
        if process is own or "postgres" in process.name()
    )


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[str, NatsServer, Any]]:
    """Yield a database's DSN, a NATS server and a connection to the database."""
    async with AsyncExitStack() as stack:
        home = stack.enter_context(short_directory())
        postgres, nats = PostgresServer(home), NatsServer(home / "nats")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        await nats.start()
        stack.push_async_callback(nats.stop)
        dsn = await postgres.take_database()
        raw = await asyncpg.connect(dsn)
        stack.push_async_callback(raw.close)
        yield dsn, nats, raw


async def ingest(
    dsn: str, nats: NatsServer, raw: Any, rounds: int = ROUNDS, ticks: int = TICKS
) -> list[Round]:
    """Store the ticks of each round by the service, then by bare COPY."""
    client = await nats.connect()
    taken = []
    settings = ResultsSettings(nats_url=nats.authenticated_url, postgres_dsn=dsn)
    async with create_service(settings).running():
        pass  # makes streams, tables and consumers
    for round_no in range(rounds):
        # Each round has minutes of its own: they are rolled up once.
        start = utcnow() - timedelta(seconds=ticks * (rounds - round_no))
        samples = ticks_of(round_no, start, ticks)
        stream = client.jetstream(publish_async_max_pending=4000)
        for sample in samples:
            await stream.publish_async(subject_for(sample), encode(sample))
        await stream.publish_async_completed()
        expected = (round_no + 1) * len(samples) * GPUS_PER_NODE
        service = create_service(settings)
        async with service.running():
            before, began = cpu_seconds(), time.perf_counter()

            async def is_stored(expected: int = expected) -> bool:
                # the planner's own count would lag: ticks are noted with their rows
                known = "SELECT coalesce(sum(upper(seen) - lower(seen)), 0) FROM results.agent_boot"
                return int(await raw.fetchval(known)) * GPUS_PER_NODE >= expected

            await eventually(is_stored, within_seconds=300, every_seconds=0.05, what="every sample")
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
        count = len(samples) * GPUS_PER_NODE
        one = Round(count / seconds, await bare_copy(raw, round_no), cpu / count * 10_000)
        taken.append(one)
        print(
            f"round {round_no + 1}: {one.ours:,.0f} samples/s of {count:,},"
            f" bare COPY {one.bare:,.0f}/s, {one.cores:.2f} cores for 10,000/s"
        )
    await client.close()
    return taken


def ingest_figures(rounds: list[Round]) -> dict[str, float]:
    """Return the best of all rounds: on a host that does other work, the least disturbed ones."""
    ours = max(one.ours for one in rounds)
    return {
        "ingest_samples_per_s": round(ours),
        "ingest_over_copy": round(ours / max(one.bare for one in rounds), 3),
        "cores_at_10000_gpus": round(min(one.cores for one in rounds), 3),
    }


async def bare_copy(raw: Any, round_no: int) -> float:
    """Rows per second of the round's own rows, 4,000 in each call as ours."""
    names = ", ".join(COLUMNS)
    rows = await raw.fetch(
        f"SELECT {names} FROM results.stored_sample WHERE boot_id = $1", UUID(int=1000 + round_no)
    )
    await raw.execute("DROP TABLE IF EXISTS bare")
    await raw.execute("CREATE TABLE bare (LIKE results.sample_by_device INCLUDING ALL)")
    records = [tuple(row) for row in rows]
    began = time.perf_counter()
    for at in range(0, len(records), 4000):
        await raw.copy_records_to_table("bare", records=records[at : at + 4000], columns=COLUMNS)
    return len(records) / (time.perf_counter() - began)


async def pack(database: Database) -> dict[str, float]:
    """Pack all that was stored, as of long ago."""
    count = "SELECT count(*) FROM stored_sample"
    async with database.statements() as connection:
        rows = int(await connection.fetchval(count))
    before = cpu_seconds()
    await Packing(database, Partitions(database, Table.PACKED, 730)).pack_old(
        utcnow() + timedelta(hours=1)
    )
    cores = (cpu_seconds() - before) / rows * 10_000
    async with database.statements() as connection:
        assert await connection.fetchval("SELECT count(*) FROM tick") == 0
        await connection.execute("TRUNCATE packed_sample")
    return {"packing_cores_at_10000_gpus": round(cores, 3)}


async def fill(database: Database, days: int) -> dict[str, float]:
    """Make raw samples of the last days and rollups of seven; return how much room they take."""
    today = midnight(utcnow().date())
    first = today - timedelta(days=DAYS)
    partitions = {table: Partitions(database, table, 730) for table in Table}
    for table in Table:
        await partitions[table].make((first + timedelta(days=n)).date() for n in range(DAYS + 1))
    for name, step, minutes in (("sample_minute", "'1 min'", 1), ("sample_hour", "'1 hour'", 60)):
        text = FILL_ROLLUPS.format(table=name, metrics=_OF_METRICS, step=step)
        async with database.pool.acquire() as connection:
            await connection.execute(text, first, today, minutes, timeout=600)
            await connection.execute(f"ANALYZE {name}", timeout=600)

    async def add(since: datetime, until: datetime) -> float:
        name = Table.RAW.name_of(since.date())
        async with database.pool.acquire() as connection:
            await connection.execute(FILL.format(partition=name), since, until, timeout=900)
            await connection.execute(f"VACUUM ANALYZE {name}", timeout=600)
            size = float(await connection.fetchval(SIZE, name))
        return size / (DEVICES * (until - since).total_seconds())

    packed = 0.0
    unpacked = await add(today - PACK_AFTER, today)
    packing = Packing(database, partitions[Table.PACKED])
    for n in range(days):
        start = today - timedelta(days=n + 1)
        until = start + timedelta(days=1) - (PACK_AFTER if n == 0 else timedelta())
        await add(start, until)
        await packing.pack_old(until)
        async with database.pool.acquire() as connection:
            await connection.execute(f"VACUUM {Table.RAW.name_of(start.date())}", timeout=600)
            name = Table.PACKED.name_of(start.date())
            await connection.execute(f"VACUUM ANALYZE {name}", timeout=600)
            size = await connection.fetchval(SIZE, name)
        packed = size / (DEVICES * (until - start).total_seconds())
        print(f"raw day {n + 1} of {days} is there")
    return {
        "raw_rows": DEVICES * days * 86_400,
        "bytes_per_sample": round(packed, 1),
        "unpacked_bytes_per_sample": round(unpacked, 1),
    }


async def milliseconds(work: Callable[[], Awaitable[object]], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        found.append((time.perf_counter() - began) * 1e3)
    return sorted(found)


def p99(sorted_values: list[float]) -> float:
    return sorted_values[int(0.99 * (len(sorted_values) - 1))]


async def charts(database: Database) -> dict[str, float]:
    today = midnight(utcnow().date())
    kept = dict.fromkeys(Level, datetime.min.replace(tzinfo=UTC))
    worst: dict[str, float] = {}
    for name, span in PRESETS.items():
        for who, device in (("64 GPUs", None), ("1 GPU", "GPU-3-3")):
            end = today - timedelta(seconds=17)

            async def ask(
                span: timedelta = span, device: str | None = device, end: datetime = end
            ) -> None:
                query = GetSeries(
                    metric=SeriesMetric.POWER_DRAW_W,
                    start_at=end - span,
                    end_at=end,
                    device_uuid=device,
                )
                async with database.transaction() as connection:
                    encode(await history.series(connection, query, kept))

            await ask()
            taken = await milliseconds(ask, QUERIES)
            worst[name] = max(worst.get(name, 0.0), p99(taken))
            print(f"{name:>4} {who:8} p50 {statistics.median(taken):6.1f} ms p99 {p99(taken):6.1f}")
    return {
        "chart_7d_p99_ms": round(worst["7d"], 1),
        "chart_worst_p99_ms": round(max(worst.values()), 1),
    }


async def aggregate() -> dict[str, float]:
    """The arithmetic alone, of readings as they come from the table."""
    devices = [
        DeviceGrant(node_id="node-0", uuid=f"GPU-{i}", index=i, name="GPU") for i in range(8)
    ]
    readings = {
        (device.node_id, device.uuid): [
            Reading(
                at=float(tick),
                interval_seconds=1.0,
                boot_id=UUID(int=1),
                sequence=tick,
                utilization_percent=float(tick % 100),
                memory_total_mb=80_000.0,
                memory_used_mb=20_000.0,
                temperature_c=60.0,
                power_draw_w=300.0 + tick % 50,
                energy_mj=tick * 300_000,
            )
            for tick in range(180)
        ]
        for device in devices
    }

    async def both() -> None:
        for span in (Span(30.5, 150.5), Span(5.5, 170.5)):
            summarize(Run(devices, [span], MEASURING), readings, simulated=False)

    return {"aggregate_ms": round(statistics.median(await milliseconds(both, 20)), 2)}


async def main(days: int) -> None:
    async with servers() as (dsn, nats, raw), AsyncExitStack() as stack:
        figures = ingest_figures(await ingest(dsn, nats, raw))
        database = Database(dsn, "results", MIGRATIONS)
        await database.open()
        stack.push_async_callback(database.close)
        figures |= await pack(database) | await fill(database, days)
        figures |= await charts(database) | await aggregate()
        print(json.dumps(figures))


if __name__ == "__main__":
    gc.freeze()  # this and the loop are those of `python -m services.results`
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else DAYS))
