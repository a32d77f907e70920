"""A disk that is full takes the end of an attempt, and no new engine is started on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.executor import AttemptOutcome, FailureKind
from services.executor.app import create_service
from tests.support.small_disk import fill, small_disk
from tests.support.worlds.executor import (
    make_cancel,
    make_device,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64) as place:
        yield place


async def test_an_attempt_ends_on_a_full_disk_and_the_next_says_why_it_cannot_start(
    nats_url: str, disk: Path
) -> None:
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
