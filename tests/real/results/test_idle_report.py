"""What giving up idle reservations would have freed, from stored samples, against a plain count."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from schemas.results.reports import GetIdle, IdleLine
from schemas.telemetry.readings import GpuSampled
from services.results.domain.rollup import HOUR, start_of
from services.results.gpu_time.idle import IdleReports
from services.results.migrations import MIGRATIONS
from shared.clock import utcnow
from shared.postgres.database import Database
from tests.real.results.test_gpu_time import grant_of, granted, services
from tests.support.worlds.results import make_sample

HOURS = 4
STEP = 30.0


def sampled(
    start: datetime, busy: dict[int, set[int]], unread: dict[int, set[int]]
) -> list[GpuSampled]:
    """By GPU the minutes in which it works, and those of which nothing is known."""
    found = []
    for number in range(int(HOURS * 3600 / STEP)):
        minute = int(number * STEP // 60)
        at = start + timedelta(seconds=number * STEP + 0.5)
        sample = replace(make_sample(at, number, gpus=3), interval_seconds=STEP)
        gpus = tuple(
            replace(
                gpu,
                utilization_percent=None
                if minute in unread.get(gpu.index, set())
                else 90.0
                if minute in busy.get(gpu.index, set())
                else 0.0,
            )
            for gpu in sample.gpus
        )
        found.append(replace(sample, gpus=gpus))
    return found


async def freed(
    postgres_dsn: str, start: datetime, holder: str = "exec/ada"
) -> tuple[IdleLine, ...]:
    """GPU 0 is busy once and idle since; GPUs 1 and 2 are one reservation's, whose second GPU works
    in bursts and has an unknown minute.
    """
    database = Database(postgres_dsn, "results", MIGRATIONS)
    await database.open()
    samples, rollups, facts, _ = services(database)
    busy = {0: set(range(10)), 2: {*range(5), 100, 160}}
    await samples.store(sampled(start, busy, {2: {50}}))
    mine = replace(granted(start, UUID(int=1), grant_of(0)), holder=holder)
    await facts.record(mine)
    await facts.record(granted(start, UUID(int=2), grant_of(1), grant_of(2)))
    await rollups.roll_up_ready(utcnow())
    found = await IdleReports(database).idle(
        GetIdle(
            start_at=start,
            end_at=start + HOURS * HOUR,
            window_seconds=30 * 60,
            grace_seconds=10 * 60,
        )
    )
    await database.close()
    return found.lines


async def test_idle_report_counts_time_beyond_grace(
    postgres_dsn: str,
) -> None:
    start = start_of(utcnow(), HOUR) - (HOURS + 1) * HOUR

    lines = await freed(postgres_dsn, start)

    # Of GPU 0 the minutes from 10 to 240. Of the other two those from 5 to 49 and 51 to 99, 101 to
    # 159 and 161 to 239, when both were known to be idle.
    alone = 230 - 40
    together = 2 * sum(minutes - 40 for minutes in (45, 49, 59, 79))
    (line,) = lines
    assert round(line.freed_gpu_hours * 60, 3) == alone + together
    assert (line.reservations, line.used_again) == (2, 1)
    assert (line.namespace, line.holder) == ("team-a", "exec/ada")


async def test_idle_report_leaves_out_experiments(postgres_dsn: str) -> None:
    start = start_of(utcnow(), HOUR) - (HOURS + 1) * HOUR

    lines = await freed(postgres_dsn, start, holder="experiment/x/task#1")

    assert [line.reservations for line in lines] == [1]
