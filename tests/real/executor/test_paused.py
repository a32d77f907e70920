"""An executor that does not run cannot stop its engines: they are stopped in time all the same."""

import os
import signal
import time
from pathlib import Path

import pytest

from schemas.errors import Accepted
from schemas.executor.attempts import AttemptOutcome, FailureKind
from schemas.scheduler.reservations import RenewReservation
from tests.support.worlds.executor import (
    executor_process,
    make_endless_start,
    make_settings,
    scheduling,
    until_answering,
)

TTL_SECONDS = 6.0


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_engines_of_paused_executor_end_before_lease(
    nats_url: str, tmp_path: Path, how: signal.Signals
) -> None:
    renewed_at = 0.0

    def renew(command: RenewReservation) -> Accepted:
        nonlocal renewed_at
        renewed_at = time.monotonic()
        return Accepted(command_id=command.command_id, lease_ttl_seconds=TTL_SECONDS)

    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start(lease_ttl_seconds=TTL_SECONDS)
    async with scheduling(settings, answer_renewal=renew) as scheduler:
        with executor_process(settings) as executor:
            await until_answering(scheduler)
            await scheduler.ask(start)
            pids = await scheduler.until_measuring(start)
            os.kill(executor.pid, how)
            await scheduler.until_no_engine(start, within_seconds=TTL_SECONDS + 5)
            gone_after_seconds = time.monotonic() - renewed_at
            if how is signal.SIGSTOP:
                os.kill(executor.pid, signal.SIGCONT)
                finished = await scheduler.finished(start)
                await scheduler.until_released(start)
                assert finished.outcome is AttemptOutcome.INTERRUPTED
                assert finished.failure is not None
                assert finished.failure.kind is FailureKind.LEASE_LOST

    assert pids
    assert gone_after_seconds < TTL_SECONDS
