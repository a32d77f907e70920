"""A disk that is full takes the end of an attempt, and no new engine is started on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.base import Command
from schemas.errors import Accepted, Refused
from schemas.executor.attempts import AttemptOutcome, FailureKind
from services.executor.app import create_service
from shared.testing import eventually
from tests.support.disks.small_disk import fill, small_disk
from tests.support.worlds.executor import (
    Scheduler,
    make_cancel,
    make_device,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
)

pytestmark = pytest.mark.long


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64) as place:
        yield place


async def test_full_disk_ends_attempt_and_refuses_next(nats_url: str, disk: Path) -> None:
    settings = make_settings(nats_url, disk)
    running, refused, later = (
        make_endless_start(),
        make_start(devices=(make_device("GPU-1"),)),
        make_start(devices=(make_device("GPU-2"),)),
    )
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(running)
        await scheduler.until_measuring(running)
        filler = fill(disk)
        await scheduler.ask(make_cancel(running))
        ended = await scheduler.finished(running)
        await scheduler.until_released(running)
        await scheduler.ask(refused)
        full = await scheduler.finished(refused)
        await scheduler.until_released(refused)
        filler.unlink()
        await scheduler.ask(later)
        succeeded = await scheduler.finished(later)

    assert ended.outcome is AttemptOutcome.CANCELLED
    assert scheduler.pids(running.reservation_id) == []
    assert full.failure is not None
    assert full.failure.kind is FailureKind.DISK_FULL
    assert "MB" in full.failure.message
    assert full.failure.hint
    assert succeeded.outcome is AttemptOutcome.SUCCEEDED


async def test_engine_outlives_full_disk_and_end_is_recorded(nats_url: str, disk: Path) -> None:
    settings = make_settings(nats_url, disk, report_interval_seconds=0.1)
    running = make_endless_start(lease_ttl_seconds=3.0)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(running)
        await scheduler.until_measuring(running)
        filler = fill(disk)
        refused = await refused_for_want_of_room(scheduler, disk)
        renewals, reports = len(scheduler.renewals), len(scheduler.reports)
        await eventually(lambda: len(scheduler.renewals) > renewals + 1, what="renewals")
        outlived = scheduler.pids(running.reservation_id)
        filler.unlink()
        await eventually(lambda: len(scheduler.reports) > reports, what="a report")
        await eventually(lambda: is_accepted(scheduler, make_cancel(running)), what="the cancel")
        ended = await scheduler.finished(running)
        await scheduler.until_released(running)

    assert "the disk is full" in refused.message
    assert refused.retryable
    assert outlived
    assert ended.outcome is AttemptOutcome.CANCELLED


async def refused_for_want_of_room(scheduler: Scheduler, disk: Path) -> Refused:
    """Write until nothing is left, the reserve included."""
    while True:
        reply = await scheduler.ask(make_cancel(make_start()))
        if isinstance(reply, Refused):
            return reply
        fill(disk)


async def is_accepted(scheduler: Scheduler, command: Command) -> bool:
    return isinstance(await scheduler.ask(command), Accepted)
