"""A second start of an engine finds what the first one compiled, in its own namespace alone."""

from pathlib import Path

import pytest

from schemas.executor.attempts import AttemptOutcome
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from tests.support.worlds.executor import Scheduler, make_settings, make_start, scheduling

COMPILES = {"start-compile-seconds": 0.2, "ttft-seconds": 0.0, "tpot-seconds": 0.0}
NEW, KNOWN = "compiling (simulated)", "compiled before (simulated)"


async def said(scheduler: Scheduler, settings: ExecutorSettings, namespace: str) -> str:
    """The first line of a started engine's log."""
    start = make_start(COMPILES, namespace=namespace)
    await scheduler.ask(start)
    finished = await scheduler.finished(start, within_seconds=60)
    await scheduler.until_released(start)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    log = settings.attempt_dir(start.attempt_id) / "engine.log"
    return log.read_text().splitlines()[0]


@pytest.mark.long
async def test_second_start_reuses_namespace_compile_cache(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        starts = [await said(scheduler, settings, namespace) for namespace in ("a", "a", "b")]

    assert starts == [NEW, KNOWN, NEW]
