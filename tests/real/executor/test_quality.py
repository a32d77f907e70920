"""Greedy answers of engines that run, asked for before their load."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.executor.attempts import AttemptOutcome, StartExperiment
from schemas.task.benchmark import BenchmarkSpec
from schemas.task.quality import QualityAnswers, QualityProbe
from services.executor.app import create_service
from shared.benchmarks.quality.agreement import compare
from tests.support.processes.inference_engine import require_engine
from tests.support.worlds.executor import make_settings, make_start, scheduling

PROBE = QualityProbe(prompts=8, max_tokens=16)
SHORT = BenchmarkSpec(
    traffic_scenarios=("D(8,8)",), num_concurrency=(1,), max_requests_per_level=2, quality=PROBE
)


async def answers_of(nats_url: str, home: Path, start: StartExperiment) -> QualityAnswers:
    settings = make_settings(nats_url, home, model_roots=str(home))
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        finished = await scheduler.finished(start, within_seconds=90)
        await scheduler.until_released(start)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.benchmark is not None
    assert finished.benchmark.quality is not None
    return finished.benchmark.quality


async def test_planted_divergence_is_seen(nats_url: str, tmp_path: Path) -> None:
    found = [
        await answers_of(
            nats_url,
            tmp_path / str(number),
            make_start({"answer-drift": drift, "tpot-seconds": 0.0}, benchmark=SHORT),
        )
        for number, drift in enumerate((0.0, 1.0))
    ]

    drifted = compare(1, found[0], found[1], PROBE)
    assert (drifted.compared, drifted.identical) == (8, 0)
    assert drifted.agreement == pytest.approx(0.5, abs=0.15)
    assert drifted.first_divergence is not None
    assert (drifted.first_divergence.got or "").startswith("drifted")


async def test_quality_questions_of_foreign_file_are_refused(nats_url: str, tmp_path: Path) -> None:
    (tmp_path / "questions").write_text('{"prompt": "a?", "answer": "nowhere in it"}\n' * 3)
    probe = QualityProbe(prompts=0, accuracy_file="questions")
    start = make_start(benchmark=replace(SHORT, quality=probe))

    answers = await answers_of(nats_url, tmp_path, start)

    assert (answers.answers, answers.accuracy, answers.questions) == ((), 0.0, 3)
    elsewhere = QualityProbe(accuracy_file="/etc/hostname")
    settings = make_settings(nats_url, tmp_path)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        reply = await scheduler.ask(make_start(benchmark=replace(SHORT, quality=elsewhere)))
    assert isinstance(reply, Refused)
    assert (reply.code, reply.path) == (
        *(ErrorCode.BAD_REQUEST, "$.benchmark.quality.accuracy_file"),
    )


@pytest.mark.long
async def test_a_real_model_agrees_with_itself(nats_url: str, tmp_path: Path) -> None:
    require_engine("llamacpp")
    parameters = {"threads": 1, "parallel": 2, "ctx-size": 1024}
    found = [
        await answers_of(
            nats_url,
            tmp_path / str(number),
            make_start(parameters, engine="llamacpp", model="smollm2-135m", benchmark=SHORT),
        )
        for number in range(2)
    ]

    verdict = compare(1, found[0], found[1], PROBE)

    assert None not in found[0].answers
    assert (verdict.compared, verdict.identical, verdict.agreement) == (8, 8, 1.0)
