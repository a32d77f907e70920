"""What storing and reading the GPUs' samples costs.

`make bench NAME=results`; `python -m tests.benchmarks.results 1` keeps one day of raw samples
instead of seven. 64 GPUs on 8 nodes. Storing: a stream full of ticks is drained by the service,
and the same rows go by bare COPY into a table alike; they take turns, and the best round of each
counts, as on a host that does other work as well. Reading: raw samples for the days asked for and
rollups for seven, made inside Postgres.

The last line is one JSON object:

`ingest_samples_per_s`: from the stream into committed rows.
`ingest_over_copy`: over bare COPY of the same rows into a table with the same indexes.
`cores_at_10000_gpus`: processor time of the service and of Postgres for 10,000 samples.
`chart_7d_p99_ms`, `chart_worst_p99_ms`: 64 GPUs over 7 days, and the slowest preset.
`aggregate_ms`: an experiment's summaries computed from its stored samples, 8 GPUs for 2 minutes.
`bytes_per_sample`: of a day's partition with its indexes.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import psutil

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
from services.results.samples.partitions import Partitions, Table, midnight
from services.results.settings import ResultsSettings
from shared.clock import utcnow
from shared.messaging.codec import encode
from shared.postgres.database import Database
from shared.testing import NatsServer, PostgresServer, eventually, run_apart, short_directory

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

FILL_RAW: Final = """
INSERT INTO {partition} (device_no, observed_at, boot_id, sequence, interval_seconds,
    utilization_percent, memory_total_mb, memory_used_mb, temperature_c, power_draw_w,
    power_limit_w, energy_mj, ecc_corrected, ecc_uncorrected, condition_no)
SELECT device_no, at, '00000000-0000-0000-0000-000000000007', extract(epoch FROM at), 1,
       (extract(epoch FROM at)::bigint * device_no) % 101, 80000, 20000 + device_no,
       40 + device_no % 30, 100 + (extract(epoch FROM at)::bigint * device_no) % 400, 700,
       extract(epoch FROM at)::bigint * 300000, 0, 0, 1
FROM generate_series($1::timestamptz, $2::timestamptz - interval '1 s', '1 s') AS at, device
"""
_OF_METRICS: Final = ", ".join(f"60 * {n}, 10, 400, 60.0 * {n} * 200" for n in ("$3",) * 4)
FILL_ROLLUPS: Final = """
INSERT INTO {table} SELECT device_no, at, 60 * $3, 60.0 * $3, {metrics}
FROM generate_series($1::timestamptz, $2::timestamptz - interval '1 s', {step}) AS at, device
"""


def ticks_of(round_no: int, start: datetime) -> list[GpuSampled]:
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
        for tick in range(TICKS)
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


async def ingest(dsn: str, nats: NatsServer, raw: Any) -> dict[str, float]:
    client = await nats.connect()
    ours, bare, cores = [], [], []
    settings = ResultsSettings(nats_url=nats.authenticated_url, postgres_dsn=dsn)
    async with create_service(settings).running():
        pass  # makes streams, tables and consumers
    for round_no in range(ROUNDS):
        # Each round has minutes of its own: they are rolled up once.
        samples = ticks_of(round_no, utcnow() - timedelta(seconds=TICKS * (ROUNDS - round_no)))
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
        ours.append(count / seconds)
        cores.append(cpu / count * 10_000)
        bare.append(await bare_copy(raw, round_no))
        print(
            f"round {round_no + 1}: {ours[-1]:,.0f} samples/s of {count:,},"
            f" bare COPY {bare[-1]:,.0f}/s, {cores[-1]:.2f} cores for 10,000/s"
        )
    await client.close()
    return {
        "ingest_samples_per_s": round(max(ours)),
        "ingest_over_copy": round(max(ours) / max(bare), 3),
        "cores_at_10000_gpus": round(min(cores), 3),
    }


async def bare_copy(raw: Any, round_no: int) -> float:
    """Rows per second of the round's own rows, 4,000 in each call as ours."""
    names = ", ".join(COLUMNS)
    rows = await raw.fetch(
        f"SELECT {names} FROM results.sample WHERE boot_id = $1", UUID(int=1000 + round_no)
    )
    await raw.execute("DROP TABLE IF EXISTS bare")
    await raw.execute("CREATE TABLE bare (LIKE results.sample INCLUDING ALL)")
    records = [tuple(row) for row in rows]
    began = time.perf_counter()
    for at in range(0, len(records), 4000):
        await raw.copy_records_to_table("bare", records=records[at : at + 4000], columns=COLUMNS)
    return len(records) / (time.perf_counter() - began)


async def fill(database: Database, days: int) -> tuple[int, float]:
    """Raw samples of the last days and rollups of seven; rows, and bytes for each."""
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
    for n in range(days):
        start = today - timedelta(days=n + 1)
        name = Table.RAW.name_of(start.date())
        async with database.pool.acquire() as connection:
            end = start + timedelta(days=1)
            await connection.execute(FILL_RAW.format(partition=name), start, end, timeout=900)
            await connection.execute(f"VACUUM ANALYZE {name}", timeout=600)
        print(f"raw day {n + 1} of {days} is there")
    name = Table.RAW.name_of((today - timedelta(days=1)).date())
    async with database.statements() as connection:
        size = await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", name)
        rows = await connection.fetchval(f"SELECT count(*) FROM {name}")
    return rows * days, size / rows


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
        figures = await ingest(dsn, nats, raw)
        database = Database(dsn, "results", MIGRATIONS)
        await database.open()
        stack.push_async_callback(database.close)
        rows, size = await fill(database, days)
        figures |= await charts(database) | await aggregate()
        figures |= {"raw_rows": rows, "bytes_per_sample": round(size)}
        print(json.dumps(figures))


if __name__ == "__main__":
    run_apart(main(int(sys.argv[1]) if len(sys.argv) > 1 else DAYS))
