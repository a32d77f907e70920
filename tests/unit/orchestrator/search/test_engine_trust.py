"""Which of several engines is better, by their best configurations."""

from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.search.history import RunRecord, with_settings_compared
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.verdicts.engines import engine_lines, winner_text
from shared.benchmarks.verdicts.ranking import Scored

LATENCY = Objective.MINIMIZE_LATENCY


def run_of(
    ordinal: int, engine: str, score: float, *, flag: int = 0, repeats: int | None = None
) -> RunRecord:
    role = RunRole.SEARCH if repeats is None else RunRole.REPEAT
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters={"base_runtime": engine, "flag": flag},
        scored=Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score),
        run=RunInfo(role=role, repeats=repeats),
    )


def measure(scores: dict[tuple[str, int], list[float]]) -> list[RunRecord]:
    """The first run of each configuration, then all that are asked for, of these scores in turn."""
    past = [
        run_of(number, engine, values[0], flag=flag)
        for number, ((engine, flag), values) in enumerate(scores.items(), start=1)
    ]
    keys = list(scores)
    while checks := [c for c in next_checks(LATENCY, past, 1) if c.role is RunRole.REPEAT]:
        engine, flag = keys[checks[0].repeats - 1]
        values = scores[engine, flag]
        made = sum(run.run.repeats == checks[0].repeats for run in past) + 1
        past.append(
            run_of(
                len(past) + 1,
                engine,
                values[made % len(values)],
                flag=flag,
                repeats=checks[0].repeats,
            )
        )
    return past


def test_better_engine_is_named_with_the_noise() -> None:
    past = measure(
        {
            ("vllm", 1): [1.3, 1.31, 1.29],
            ("sglang", 1): [1.01, 1.0, 0.99],
            ("vllm", 2): [1.22, 1.21, 1.23],
        }
    )

    trust = verdict(LATENCY, past)

    assert [(each.base_runtime, each.ordinal) for each in trust.engines] == [
        ("sglang", 2),
        ("vllm", 3),
    ]
    rival = trust.engines[1]
    assert rival.is_decided
    assert rival.runs >= 2
    text = winner_text(trust, past[1].parameters)
    assert text.startswith("SGLang with flag=1 beats vLLM by 2")
    assert f"(noise {rival.noise_percent:.3g} %)" in text
    [line] = engine_lines(trust)
    assert line.startswith("SGLang (experiment 2, ")


def test_engines_within_the_noise_are_said_to_be() -> None:
    past = measure({("vllm", 1): [1.0, 1.04, 0.97, 1.02], ("sglang", 1): [1.01, 0.98, 1.03, 0.99]})

    trust = verdict(LATENCY, past)

    assert not trust.engines[1].is_decided
    assert "cannot be told from" in winner_text(trust, {"base_runtime": "vllm"})
    assert "within the noise" in next(engine_lines(trust))


def test_best_of_each_engine_is_measured_twice() -> None:
    past = measure(
        {
            ("vllm", 1): [3.0, 3.01, 2.99],
            ("sglang", 1): [1.0, 1.01, 0.99],
            ("lmdeploy", 1): [2.0, 2.01, 1.99],
        }
    )

    runs = {standing.base_runtime: standing.runs for standing in verdict(LATENCY, past).engines}

    assert min(runs.values()) >= 2


def test_one_engine_has_no_standing() -> None:
    past = [
        RunRecord(
            ordinal=number,
            state=ExperimentState.SUCCEEDED,
            parameters={"flag": number},
            scored=Scored(experiment_id=UUID(int=number), ordinal=number, score=1.0 + number),
        )
        for number in (1, 2)
    ]

    assert verdict(LATENCY, past).engines == ()


@pytest.mark.parametrize(("other_image", "is_set_aside"), [("sha256:a", False), ("sha256:b", True)])
def test_images_are_compared_within_an_engine(other_image: str, *, is_set_aside: bool) -> None:
    images = ["sha256:a", "sha256:a", "sha256:z", "sha256:z", "sha256:z", other_image]
    engines = ["vllm", "vllm", "sglang", "sglang", "sglang", "vllm"]
    past = [
        RunRecord(
            ordinal=number,
            state=ExperimentState.SUCCEEDED,
            parameters={"base_runtime": engine},
            run=RunInfo(image_digest=image),
        )
        for number, (engine, image) in enumerate(zip(engines, images, strict=True), start=1)
    ]

    compared = with_settings_compared(past)

    assert [bool(run.run.contaminated) for run in compared] == [*[False] * 5, is_set_aside]
