"""What an engine tells of itself leaves its node while it is measured, with the attempt's fence."""

from pathlib import Path
from typing import Any

import pytest

from schemas.executor.attempts import AttemptOutcome
from schemas.executor.engine_samples import EngineSampled
from services.executor.app import create_service
from shared.testing import eventually
from tests.support.worlds.executor import (
    ENDLESS,
    NODE,
    make_cancel,
    make_endless_start,
    make_settings,
    scheduling,
)


@pytest.mark.parametrize(
    ("parameters", "engine"),
    [
        pytest.param({"step-seconds": 0.01, "kv-tokens": 4096}, "vllm", id="as vLLM"),
        pytest.param(
            {"step-seconds": 0.01, "dialect": "sglang"},
            "sglang",
            id="as SGLang",
            marks=pytest.mark.long,
        ),
        pytest.param(ENDLESS, None, id="it has none, and that is said"),
    ],
)
async def test_engine_metrics_are_published_while_measuring(
    nats_url: str, tmp_path: Path, parameters: dict[str, Any], engine: str | None
) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start(parameters)
    told: list[EngineSampled] = []

    async def note(sample: EngineSampled) -> None:
        told.append(sample)

    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.bus.listen(EngineSampled, note)
        await scheduler.bus.flush()
        await scheduler.ask(start)
        is_told = (lambda: len(told) >= 1) if engine is None else (lambda: busy(told))
        await eventually(is_told, within_seconds=60, what="what the engine tells")
        await scheduler.ask(make_cancel(start))
        finished = await scheduler.finished(start)

    assert finished.outcome is AttemptOutcome.CANCELLED
    assert {each.engine for each in told} == {engine}
    assert [each.sequence for each in told] == list(range(len(told)))
    first = told[0]
    assert (first.node_id, first.attempt_id, first.epoch) == (NODE, start.attempt_id, start.epoch)
    assert first.experiment_id == start.experiment_id
    if engine is None:
        assert len(told) == 1


def busy(told: list[EngineSampled]) -> bool:
    """Whether tokens were counted from one sample to another."""
    counted = [each.reading.generation_tokens or 0.0 for each in told]
    return len(told) > 1 and counted[-1] > counted[0]
