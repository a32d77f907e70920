"""Which further runs are measured on a running engine, and what they tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.executor.attempts import EngineSpec, Runtime
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.kept_engines import (
    KEEP_SECONDS,
    MIN_STARTS,
    count_starts,
    decide,
    effective_runs,
    find_obstacle,
    keep_seconds,
)
from services.orchestrator.domain.search.repeated_runs import configurations_of, noise_of
from tests.unit.orchestrator.search.test_trust import run

PROCESS, DOCKER = Runtime.PROCESS, Runtime.DOCKER
starts_of_runs = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def engine(name: str = "simulated", runtime: Runtime = PROCESS, **more: Any) -> EngineSpec:
    return EngineSpec(runtime=runtime, engine=name, model="m", **more)


@pytest.mark.parametrize(
    ("spec", "request_", "obstacle"),
    [
        (engine(), GpuRequest(), ""),
        (engine("sglang", DOCKER), GpuRequest(), ""),
        (engine("vllm", DOCKER, env={"VLLM_SERVER_DEV_MODE": "1"}), GpuRequest(), ""),
        (engine("vllm", DOCKER), GpuRequest(), "VLLM_SERVER_DEV_MODE=1"),
        (engine("llamacpp"), GpuRequest(), ""),
        (engine("llamacpp", DOCKER), GpuRequest(), "in a container"),
        (engine("trtllm", DOCKER), GpuRequest(), "no reset of its state is known"),
        (engine("own-engine"), GpuRequest(), "no reset of its state is known"),
        (engine("sglang", Runtime.OME), GpuRequest(), "engines of a cluster"),
        (engine("sglang"), GpuRequest(nodes=2), "over several nodes"),
    ],
)
def test_obstacles_are_named(spec: EngineSpec, request_: GpuRequest, obstacle: str) -> None:
    found = find_obstacle(spec, request_)

    assert obstacle in found if obstacle else found == ""


@pytest.mark.parametrize("role", list(RunRole))
def test_engine_stays_up_after_repeats_and_replays_alone(role: RunRole) -> None:
    seconds = keep_seconds(engine(), GpuRequest(), RunInfo(role=role))

    assert seconds == (KEEP_SECONDS if role in {RunRole.REPEAT, RunRole.REPLAY} else None)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=8))
def test_repeat_is_kept_only_after_three_clean_starts(
    history: list[tuple[int, bool, bool]],
) -> None:
    past = [run(1, 1.0)] + [
        run(
            ordinal,
            1.0 if succeeded else None,
            role=RunRole.REPEAT,
            repeats=1,
            kept_from=start if start < ordinal else None,
            contaminated=() if clean else ("throttled",),
        )
        for ordinal, (start, succeeded, clean) in enumerate(history, start=2)
    ]

    keeping = decide(RunRole.REPEAT, 1, past)

    clean_starts = {
        each.run.kept_from or each.ordinal
        for each in past
        if each.scored is not None and not each.run.contaminated
    }
    assert keeping.is_kept is (len(clean_starts) >= MIN_STARTS)
    assert count_starts(1, past) == len(clean_starts)
    assert keeping.reason
    assert decide(RunRole.REPLAY, 1, past).is_kept
    assert not decide(RunRole.SEARCH, 1, past).is_kept


@given(starts_of_runs)
def test_effective_runs_lie_between_starts_and_runs(starts: list[int]) -> None:
    effective = effective_runs(starts)

    assert 1 - 1e-9 <= effective <= len(set(starts)) + 1e-9
    assert effective <= len(starts) + 1e-9
    assert (effective == len(starts)) is (len(set(starts)) == len(starts))


def runs_on(starts: list[int], scores: list[float]) -> list[RunRecord]:
    return [
        run(
            ordinal,
            score,
            role=RunRole.SEARCH if ordinal == 1 else RunRole.REPEAT,
            repeats=None if ordinal == 1 else 1,
            kept_from=start if start < ordinal else None,
        )
        for ordinal, (start, score) in enumerate(zip(starts, scores, strict=True), start=1)
    ]


@given(st.lists(st.floats(50, 150), min_size=3, max_size=6))
def test_shared_start_never_makes_runs_look_surer(scores: list[float]) -> None:
    alone = configurations_of(runs_on(list(range(1, len(scores) + 1)), scores))
    shared = configurations_of(runs_on([1, *[2] * (len(scores) - 1)], scores))

    noise, noise_shared = noise_of(alone), noise_of(shared)

    assert noise is not None
    assert noise_shared is not None
    assert noise.freedom == len(scores) - 1
    assert noise_shared.freedom <= noise.freedom
    assert noise_shared.variance >= noise.variance * (1 - 1e-9)
    assert noise_shared.error(shared[0], shared[0]) >= noise.error(alone[0], alone[0]) - 1e-9


def test_runs_of_one_start_alone_show_no_noise() -> None:
    [configuration] = configurations_of(runs_on([1, 1, 1], [99.0, 100.0, 101.0]))

    assert configuration.freedom == 0
    assert noise_of([configuration]) is None
    assert configuration.first.state is ExperimentState.SUCCEEDED
