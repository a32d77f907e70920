"""What a search proposes from its history."""

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.task_file import StopReason
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.crashes import crash_predictor
from services.orchestrator.domain.search.history import RunRecord, Trial, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search, Waiting
from services.orchestrator.domain.search.space import Place, Space, draw_new
from services.orchestrator.domain.search.warm_start import best_untried, is_warmed
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import make_file

GRID: dict[str, Any] = {"tp": [1, 2, 4, 8], "batch": [64, 16, 256], "policy": ["lpm", "fcfs"]}
RANGES = {
    "slots": {"type": "integer", "low": 1, "high": 64},
    "fraction": {"type": "continuous", "low": 0.5, "high": 0.95},
    "rate": {"type": "continuous", "low": 0.001, "high": 1000, "log": True},
}

Measure = Callable[[Point], float | None]


def make(parameters: dict[str, Any], **optimization: Any) -> Search:
    search = make_search(make_file(parameters=parameters, optimization=optimization))
    assert search is not None
    return search


def any_point(_: Point) -> bool:
    return True


def past_of(ordinal: int, point: Point, score: float | None) -> RunRecord:
    """An experiment that ended; without a score it failed."""
    parameters = point.show()
    if score is None:
        return RunRecord(
            ordinal=ordinal,
            state=ExperimentState.FAILED,
            parameters=parameters,
            failure=FailureKind.GPU_OUT_OF_MEMORY,
        )
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=parameters,
        scored=Scored(experiment_id=UUID(int=abs(ordinal)), ordinal=ordinal, score=score),
    )


def run(
    search: Search,
    measure: Measure,
    is_possible: Callable[[Point], bool] = any_point,
) -> tuple[list[Proposal], StopReason]:
    """The whole search, one experiment after the other; the smallest measured is best."""
    proposals: list[Proposal] = []
    past: list[RunRecord] = []
    while True:
        trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
        proposal = propose(search, trials, is_possible)
        assert not isinstance(proposal, Waiting)
        if isinstance(proposal, StopReason):
            return proposals, proposal
        proposals.append(proposal)
        past.append(past_of(proposal.ordinal, proposal.point, measure(proposal.point)))


def ordinal_of(point: Point) -> float:
    return float(GRID["tp"].index(point.parameters["tp"]))


@pytest.mark.parametrize("strategy", ["random", "bayesian"])
def test_unbounded_search_tries_everything_once(strategy: str) -> None:
    space = {"tp": GRID["tp"], "policy": GRID["policy"]}

    proposals, stopped = run(make(space, strategy=strategy), ordinal_of)

    shown = {tuple(proposal.point.show().items()) for proposal in proposals}
    assert (len(proposals), len(shown), stopped) == (8, 8, StopReason.SPACE_EXHAUSTED)
    assert [proposal.ordinal for proposal in proposals] == list(range(1, 9))


@pytest.mark.parametrize("strategy", ["random", "bayesian"])
def test_equal_seed_and_history_propose_equally(strategy: str) -> None:
    def of_seed(seed: int) -> list[Point]:
        search = make(GRID | RANGES, strategy=strategy, max_iterations=7, seed=seed)
        return [proposal.point for proposal in run(search, ordinal_of)[0]]

    assert of_seed(7) == of_seed(7)
    assert of_seed(7) != of_seed(8)


def test_a_search_takes_ranges_as_they_are() -> None:
    proposals, stopped = run(make(RANGES, strategy="random", max_iterations=40), lambda _: 1.0)

    values = [proposal.point.parameters for proposal in proposals]
    assert stopped is StopReason.MAX_ITERATIONS
    assert {type(each["slots"]) for each in values} == {int}
    assert all(1 <= each["slots"] <= 64 and 0.5 <= each["fraction"] <= 0.95 for each in values)
    # As many below the middle of six decades as above.
    assert 8 <= sum(each["rate"] < 1 for each in values) <= 32


def test_random_draws_come_before_measurements() -> None:
    search = make(GRID, strategy="bayesian", n_initial_random=4, max_iterations=7)

    proposals, _ = run(search, ordinal_of)

    assert [proposal.reason for proposal in proposals] == [
        *(f"drawn at random, {number} of 4" for number in range(1, 5)),
        *(f"the most promising by {number} measured" for number in range(4, 7)),
    ]


@pytest.mark.parametrize(("experiments", "drawn"), [(8, 3), (20, 5), (60, 10)])
def test_a_quarter_is_drawn_by_default(experiments: int, drawn: int) -> None:
    search = make(RANGES, strategy="bayesian", max_iterations=experiments)

    proposal = propose(search, [], any_point)

    assert isinstance(proposal, Proposal)
    assert proposal.reason == f"drawn at random, 1 of {drawn}"


def test_measurements_lead_to_where_the_best_are() -> None:
    def tried(strategy: str, seed: int) -> int:
        search = make(GRID, strategy=strategy, n_initial_random=4, max_iterations=12, seed=seed)
        return sum(each.point.parameters["tp"] == 1 for each in run(search, ordinal_of)[0][4:])

    # 6 of 24 configurations have the best degree.
    by_chance, led = (sum(tried(name, n) for n in range(4)) for name in ("random", "bayesian"))
    assert led >= 1.5 * by_chance


def test_failures_count_as_worst() -> None:
    search = make(GRID, strategy="bayesian")
    point = search.space.point((0, 0, 0))
    past = [past_of(1, point, None), past_of(2, point, 9.0), past_of(3, point, 1.0)]

    trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)

    assert [trial.standing for trial in trials] == [2, 1, 0]
    assert trials[0].failure is FailureKind.GPU_OUT_OF_MEMORY


def test_what_still_runs_is_not_proposed_again() -> None:
    search = make(GRID, strategy="bayesian", n_initial_random=1, seed=3)
    trials = [Trial(ordinal=1, place=(0, 0, 0), standing=0)]

    for ordinal in range(2, 12):
        proposal = propose(search, trials, any_point)
        assert isinstance(proposal, Proposal)
        place = search.space.place(proposal.point.show())
        assert place not in {trial.place for trial in trials}
        trials.append(Trial(ordinal=ordinal, place=place))


@pytest.mark.parametrize("strategy", ["random", "bayesian"])
def test_what_no_engine_takes_is_never_proposed(strategy: str) -> None:
    def is_possible(point: Point) -> bool:
        return bool(point.parameters["tp"] * point.parameters["batch"] == 64)

    proposals, stopped = run(make(GRID, strategy=strategy), ordinal_of, is_possible)

    assert {proposal.point.parameters["tp"] for proposal in proposals} == {1, 4}
    assert (len(proposals), stopped) == (4, StopReason.SPACE_EXHAUSTED)


def test_history_is_matched_by_value_and_type() -> None:
    values: dict[str, Any] = {"a": [1, 1.0, True, None, "1"], "b": [2.5, 0.5]}
    space = make(values | RANGES, strategy="random").space

    for at, value in enumerate((1, 1.0, True, None, "1")):
        shown = {"a": value, "b": 2.5, "slots": 3, "fraction": 0.5, "rate": 1.0}
        assert space.place(shown) == (at, 1, 2, 0.5, 1.0)
    assert space.place({"a": 2, "b": 2.5}) is None


def test_search_ends_after_fifty_by_default() -> None:
    assert make(RANGES, strategy="random").experiments == 50
    assert make(GRID, strategy="random").experiments == 24


def crashes_with_one_gpu(point: Point) -> float | None:
    return None if point.parameters["tp"] == 1 else ordinal_of(point)


def failed(space: Space, count: int, kind: FailureKind) -> list[Trial]:
    """So many that failed with one GPU, and as many that were measured with more."""
    places = [place for place in space.places() if place[0] == 0][:count]
    others = [place for place in space.places() if place[0] != 0][:count]
    trials = [Trial(ordinal=n, place=p, standing=9, failure=kind) for n, p in enumerate(places, 1)]
    measured = [Trial(ordinal=count + n, place=p, standing=n) for n, p in enumerate(others)]
    return [*trials, *measured]


def test_search_ends_where_only_crashes_are_left() -> None:
    # The fewer GPUs the better, if only one were enough: 6 of 24 configurations crash.
    search = make(GRID, strategy="bayesian", n_initial_random=12, max_iterations=24, seed=2)

    proposals, stopped = run(search, crashes_with_one_gpu)

    crashed = [proposal.point.parameters["tp"] == 1 for proposal in proposals]
    third = [place for place, has_crashed in enumerate(crashed) if has_crashed][2]
    # Without the prediction all would have: the best of the rest lie beside them.
    assert sum(crashed[third + 1 :]) <= 2
    # The 18 that do not crash were all tried before it gave up on the others.
    assert (crashed.count(False), stopped) == (18, StopReason.ONLY_CRASHES_LEFT)


def test_every_tenth_proposal_may_crash() -> None:
    search = make(GRID, strategy="bayesian", n_initial_random=20)
    trials = failed(search.space, 3, FailureKind.GPU_OUT_OF_MEMORY)
    predicted = []

    for ordinal in range(7, 17):
        would_crash = crash_predictor(search.space, trials)
        proposal = propose(search, trials, any_point)
        assert isinstance(proposal, Proposal)
        place = search.space.place(proposal.point.show())
        assert place is not None
        predicted.append(would_crash(place))
        trials.append(Trial(ordinal=ordinal, place=place, standing=ordinal))

    assert sum(predicted) <= 1
    assert not any(predicted[:3])


@pytest.mark.parametrize(
    ("count", "kind", "learned"),
    [
        pytest.param(2, FailureKind.GPU_OUT_OF_MEMORY, False, id="twice may be chance"),
        pytest.param(3, FailureKind.GPU_OUT_OF_MEMORY, True, id="three times is not"),
        pytest.param(3, FailureKind.NODE_LOST, False, id="a node's fault says nothing"),
    ],
)
def test_crash_is_predicted_after_three_of_a_kind(
    count: int, kind: FailureKind, learned: bool
) -> None:
    space = make(GRID, strategy="bayesian").space

    would_crash = crash_predictor(space, failed(space, count, kind))

    assert [would_crash((tp, 2, 1)) for tp in range(4)] == [learned, False, False, False]
    assert not would_crash((3, 0, 0))


def test_nothing_is_predicted_if_everything_crashed() -> None:
    space = make(GRID, strategy="bayesian").space
    trials = failed(space, 3, FailureKind.ENGINE_EXITED)[:3]

    assert not crash_predictor(space, trials)((0, 0, 0))


def test_past_measurements_are_known_not_tried() -> None:
    search = make(RANGES, strategy="bayesian", seed=1, max_iterations=6, n_initial_random=3)
    point = search.space.point((3, 0.7, 1.0))
    far = search.space.point((60, 0.9, 100.0))
    warm = [past_of(0, far, 9.0), past_of(-1, point, 1.0), past_of(-2, point, 1.1)]

    def proposed(past: list[RunRecord]) -> Proposal:
        found = propose(
            search, trials_of((Objective.MINIMIZE_LATENCY,), search.space, past), any_point
        )
        assert isinstance(found, Proposal)
        return found

    again = proposed(warm)
    assert (again.ordinal, again.point) == (1, point)
    own = [past_of(1, point, 1.0), past_of(2, far, 9.0)]
    third = proposed([*warm, *own])
    assert third.reason == "the most promising by 2 measured and 3 past experiments"
    assert proposed(own).reason == "drawn at random, 3 of 3"
    assert third == proposed([*own, *reversed(warm)])


def test_two_best_past_results_are_measured_again() -> None:
    search = make(GRID, strategy="bayesian")
    first, second, third, own = ((number, 0, 0) for number in range(4))

    def chosen(*scores: tuple[int, Place, float | None]) -> Place | None:
        past = [past_of(n, search.space.point(place), score) for n, place, score in scores]
        trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
        own_trials = [trial for trial in trials if trial.ordinal > 0]
        return best_untried([trial for trial in trials if trial.ordinal < 1], own_trials)

    warm = [(0, first, 1.0), (-1, second, 2.0), (-2, third, 3.0), (-3, second, 2.5)]
    assert chosen(*warm) == first
    assert chosen(*reversed(warm)) == first
    assert chosen(*warm, (1, own, 0.5), (2, first, 4.0)) == second, "its own is no past task's"
    assert chosen(*warm, (1, first, 4.0)) == second
    assert chosen(*warm, (1, first, 4.0), (2, second, 5.0)) is None
    assert chosen((0, first, 1.0), (1, first, 1.0)) is None


def some(count: int) -> dict[str, list[int]]:
    return {"a": list(range(count)), "b": list(range(100))}


@pytest.mark.parametrize(
    ("parameters", "is_counted"),
    [
        pytest.param(some(200), True, id="the most that are counted"),
        pytest.param(some(201), False, id="more than are counted"),
        pytest.param(RANGES, False, id="of any number"),
    ],
)
def test_rare_new_place_is_found_in_a_small_space(
    parameters: dict[str, Any], is_counted: bool
) -> None:
    space = make(parameters, strategy="random").space
    rare = max(space.places()) if is_counted else None

    assert draw_new(space, Random(1), lambda place: place == rare) == rare
    assert draw_new(space, Random(1), lambda _: False) is None


@pytest.mark.parametrize(
    ("optimization", "warmed"),
    [
        ({"strategy": "bayesian"}, True),
        ({"strategy": "auto"}, True),
        ({"strategy": "grid_search"}, False),
        ({"strategy": "random"}, False),
        (
            {
                "strategy": "bayesian",
                "objectives": ["minimize_latency", "maximize_throughput"],
            },
            False,
        ),
    ],
)
def test_learning_search_may_begin_with_the_past(
    optimization: dict[str, Any], warmed: bool
) -> None:
    assert is_warmed(make_file(optimization=optimization).optimization) is warmed
