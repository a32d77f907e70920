"""Successive halving: who goes on to more requests, by the history alone."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import BenchmarkTool
from schemas.task.objectives import Objective
from schemas.task.task_file import StopReason
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.plan.benchmark_plan import benchmark_spec
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search, Waiting
from services.orchestrator.domain.search.strategies.successive_halving import REDUCTION, make_rungs
from services.orchestrator.domain.search.trust import next_checks
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import OFFERS, make_file, make_plan

LATENCY = Objective.MINIMIZE_LATENCY
SLOTS = {"slots": {"type": "integer", "low": 1, "high": 64}}


def make(most: int | None = None, parameters: dict[str, Any] | None = None) -> Search:
    optimization = {"strategy": "successive_halving", "max_iterations": most, "seed": 3}
    file = make_file(parameters=parameters or SLOTS, optimization=optimization)
    search = make_search(file)
    assert search is not None
    return search


def past_of(proposal: Proposal, state: ExperimentState, score: float | None) -> RunRecord:
    screened = RunInfo(role=RunRole.SCREEN, request_divisor=proposal.divisor)
    return RunRecord(
        ordinal=proposal.ordinal,
        state=state,
        parameters=proposal.point.show(),
        scored=None
        if score is None
        else Scored(
            experiment_id=UUID(int=proposal.ordinal), ordinal=proposal.ordinal, score=score
        ),
        run=screened if proposal.divisor > 1 else RunInfo(),
    )


def next_of(search: Search, past: list[RunRecord]) -> Proposal | StopReason | Waiting:
    return propose(search, trials_of((LATENCY,), search.space, past), lambda _: True)


def run(search: Search, fails: int = 0) -> tuple[list[RunRecord], StopReason]:
    """The fewer slots the better; those above `fails`, if any, fail."""
    past: list[RunRecord] = []
    while isinstance(found := next_of(search, past), Proposal):
        slots = found.point.parameters["slots"]
        is_failed = 0 < fails < slots
        state = ExperimentState.FAILED if is_failed else ExperimentState.SUCCEEDED
        past.append(past_of(found, state, None if is_failed else float(slots)))
    assert isinstance(found, StopReason)
    return past, found


def slots_of(past: list[RunRecord], divisor: int) -> list[int]:
    return [each.parameters["slots"] for each in past if each.run.request_divisor == divisor]


@pytest.mark.parametrize(
    ("configurations", "want"),
    [
        (1, [(1, 1)]),
        (3, [(3, 1)]),
        (4, [(4, 3), (2, 1)]),
        (27, [(27, 9), (9, 3), (3, 1)]),
        (100, [(100, 27), (34, 9), (12, 3), (4, 1)]),
    ],
)
def test_rungs_shrink_by_three_requests_grow_by_three(
    configurations: int, want: list[tuple[int, int]]
) -> None:
    assert [(each.experiments, each.divisor) for each in make_rungs(configurations)] == want


def test_best_of_each_rung_go_on() -> None:
    past, stop = run(make(9))

    first, last = slots_of(past, REDUCTION), slots_of(past, 1)
    assert (len(first), last) == (9, sorted(first)[:3])
    assert stop is StopReason.MAX_ITERATIONS
    assert [each.run.role for each in past] == [RunRole.SCREEN] * 9 + [RunRole.SEARCH] * 3
    assert {check.repeats for check in next_checks(LATENCY, past, 8)} == {10}


def test_a_space_that_is_all_tried_is_exhausted() -> None:
    past, stop = run(make(parameters={"slots": [1, 2, 3, 4]}))

    assert sorted(slots_of(past, 3)) == [1, 2, 3, 4]
    assert (slots_of(past, 1), stop) == ([1, 2], StopReason.SPACE_EXHAUSTED)


def test_failed_configurations_do_not_go_on() -> None:
    past, _ = run(make(9), fails=2)

    failed = [each for each in past if each.state is ExperimentState.FAILED]
    assert {each.run.request_divisor for each in failed} == {3}
    assert slots_of(past, 1) == sorted(n for n in slots_of(past, 3) if n <= 2)


def test_rung_begins_when_the_last_has_ended() -> None:
    search = make(4)
    past: list[RunRecord] = []
    for _ in range(4):
        found = next_of(search, past)
        assert isinstance(found, Proposal)
        past.append(past_of(found, ExperimentState.RUNNING, None))

    assert isinstance(next_of(search, past), Waiting)
    ended = [past_of_same(each, float(each.parameters["slots"])) for each in past]
    found = next_of(search, ended)
    assert isinstance(found, Proposal)
    assert found.divisor == 1
    assert found.reason == "rung 2 of 2, all of the requests"


def past_of_same(past: RunRecord, score: float) -> RunRecord:
    return RunRecord(
        ordinal=past.ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=past.parameters,
        scored=Scored(experiment_id=UUID(int=past.ordinal), ordinal=past.ordinal, score=score),
        run=past.run,
    )


def test_proposals_ignore_the_order_of_rows() -> None:
    search = make(9)
    past, _ = run(search)

    for cut in range(len(past)):
        shuffled = past[:cut]
        Random(cut).shuffle(shuffled)
        assert next_of(search, shuffled) == next_of(search, past[:cut])


def test_few_requests_keep_concurrency_busy() -> None:
    def requests(divisor: int, **benchmark: Any) -> int:
        run = RunInfo(role=RunRole.SCREEN, request_divisor=divisor)
        file = make_file(benchmark=benchmark)
        return benchmark_spec(file, BenchmarkTool.BUILTIN, run).max_requests_per_level

    assert requests(1, max_requests_per_iteration=900) == 900
    assert requests(9, max_requests_per_iteration=900) == 100
    assert requests(9, max_requests_per_iteration=900, num_concurrency=[4, 256]) == 256
    assert requests(9, max_requests_per_iteration=20) == 8
    assert requests(9, max_requests_per_iteration=5) == 5


def test_validation_tells_rungs_and_requests() -> None:
    file = make_file(parameters=SLOTS, optimization={"strategy": "successive_halving"})

    plan = make_plan(file, OFFERS)

    assert plan.experiments_at_most == 39
    assert any(
        "27 with 1/9 of the requests drawn at random, then the best of each rung: 9 with 1/3 of "
        "the requests, 3 with all requests" in note
        for note in plan.notes
    ), plan.notes
