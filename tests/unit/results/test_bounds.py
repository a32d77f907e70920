"""What bounds a level, from facts of its window; scripted engines of known bounds in the end."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.task.benchmark import LevelMark, LevelResult
from schemas.task.level_bound import Bound
from services.results.domain.bounds import WindowFacts, bounds_of
from shared.benchmarks.metrics import RequestSample, level_result
from tests.support.known_servers.bound_cases import BASE, Case, disturbed, named_of, truth_of

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
FREE = WindowFacts(running=8, running_most=9, waiting=0, kv_cache_percent=20, preemptions=0)
CROWD = WindowFacts(running=8, running_most=8, waiting=6, kv_cache_percent=40, preemptions=0)


def make_level(*, ttft: float = 0.02, prompt: int = 100, **overrides: Any) -> LevelResult:
    """100 requests in 10 s, of 20 tokens at 10 ms."""
    sample = RequestSample(
        ttft=ttft, e2e_latency=ttft + 0.19, num_input_tokens=prompt, num_output_tokens=20
    )
    level = level_result(
        scenario="D(100,20)",
        num_concurrency=8,
        started_at=NOON,
        run_duration=10.0,
        samples=[sample] * 100,
        error_codes={},
    )
    return type(level)(
        **{name: getattr(level, name) for name in level.__struct_fields__} | overrides
    )


def facts(base: WindowFacts = FREE, **changes: Any) -> WindowFacts:
    return WindowFacts(**{name: getattr(base, name) for name in base.__struct_fields__} | changes)


@pytest.mark.parametrize(
    ("waiting", "running", "waits"),
    [(None, 8.0, False), (0.0, 0.0, False), (0.5, None, True), (0.5, 8.0, False), (8.0, 8.0, True)],
)
def test_engine_waits_with_most_requests_queued(
    waiting: float | None, running: float | None, waits: bool
) -> None:
    assert WindowFacts(waiting=waiting, running=running).waits is waits


@pytest.mark.parametrize(
    ("level", "found", "bound"),
    [
        pytest.param(make_level(), FREE, Bound.DECODE, id="steps of decoding"),
        # 90 ms of each prompt, ten in a second
        pytest.param(make_level(ttft=0.1), FREE, Bound.PREFILL, id="prompts"),
        pytest.param(make_level(), CROWD, Bound.QUEUE, id="all slots run"),
        pytest.param(
            make_level(),
            facts(CROWD, running=3),
            Bound.PREFILL,
            id="they wait though slots are free",
        ),
        pytest.param(make_level(), facts(CROWD, kv_cache_percent=95), Bound.KV_CACHE, id="full"),
        pytest.param(make_level(), facts(preemptions=5), Bound.KV_CACHE, id="it preempts"),
        pytest.param(make_level(), facts(preemptions=1), Bound.DECODE, id="one preemption"),
        pytest.param(
            make_level(), facts(kv_cache_percent=99), Bound.DECODE, id="full, and none waits"
        ),
        pytest.param(
            make_level(), facts(CROWD, power_throttled=0.5), Bound.POWER, id="slowed down for power"
        ),
        pytest.param(
            make_level(),
            facts(power_throttled=0.3, thermal_throttled=0.6),
            Bound.THERMAL,
            id="for heat",
        ),
        pytest.param(
            make_level(marks=(LevelMark.CLIENT_LIMITED,)),
            facts(CROWD, power_throttled=1.0),
            Bound.CLIENT,
            id="the client, whatever else there was",
        ),
        pytest.param(make_level(), WindowFacts(), None, id="the engine told nothing"),
        pytest.param(make_level(num_completed_requests=0), FREE, None, id="nothing was served"),
        pytest.param(
            make_level(), WindowFacts(running=1, running_most=1), Bound.DECODE, id="it told little"
        ),
    ],
)
def test_a_levels_bound(level: LevelResult, found: WindowFacts, bound: Bound | None) -> None:
    [named] = bounds_of([level], [found])

    assert (named and named.bound) == bound
    assert named is None or named.evidence


def test_prompt_cost_is_learned_without_queue() -> None:
    alone, crowded = make_level(ttft=0.1), make_level(ttft=2.0)

    first, second = bounds_of([alone, crowded], [FREE, facts(CROWD, running=3)])

    assert first == second
    assert first is not None
    assert "90 %" in first.evidence


@pytest.mark.parametrize(
    "case",
    [
        Case(BASE, (100, 100), 1),
        Case(BASE, (4000, 8), 8),
        Case(replace(BASE, slots=2), (50, 30), 6),
        Case(replace(BASE, kv_tokens=800), (300, 40), 6),
    ],
    ids=lambda case: case.name,
)
def test_scripted_engines_have_the_right_bound(case: Case) -> None:
    assert named_of(case) is truth_of(case)


def test_a_disturbed_level_is_not_laid_to_its_engine() -> None:
    assert [truth for truth, _ in disturbed()] == [named for _, named in disturbed()]
