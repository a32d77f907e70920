"""What every search strategy keeps to, and that nothing but its file and its row names it."""

import ast
from pathlib import Path
from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.parameters import IntegerRange
from schemas.task.strategies import Strategy
from schemas.task.task_file import OptimizationSpec, StopReason
from schemas.task.trust import RunInfo
from services.orchestrator.domain.configurations import Axis
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.propose import begin_search, propose
from services.orchestrator.domain.search.search import Answer, Proposal, Search, Waiting
from services.orchestrator.domain.search.space import Space, space_of
from services.orchestrator.domain.search.strategies.table import STRATEGIES
from shared.benchmarks.verdicts.ranking import Scored

ROOT = Path(__file__).parents[2]
OWN_PLACES = ("schemas/task/", "services/orchestrator/domain/search/strategies/")
SEARCHES = [strategy for strategy in Strategy if strategy.traits.is_search]


def make_space() -> Space:
    slots = Axis(block="parameters", name="slots", span=IntegerRange(low=1, high=12))
    layout = Axis(block="parameters", name="tensor-parallel-size", values=(1, 2, 4))
    return space_of([slots, layout])


def begin(strategy: Strategy, max_iterations: int | None = None) -> Search:
    spec = OptimizationSpec(strategy=strategy, seed=7, max_iterations=max_iterations)
    return begin_search(spec, make_space())


def measure(proposal: Proposal) -> RunRecord:
    parameters = proposal.point.show()
    score = abs(parameters["slots"] - 8) + 3.0 / parameters["tensor-parallel-size"]
    experiment_id = UUID(int=proposal.ordinal)
    return RunRecord(
        ordinal=proposal.ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=parameters,
        scored=Scored(experiment_id=experiment_id, ordinal=proposal.ordinal, score=score),
        run=RunInfo(request_divisor=proposal.divisor),
    )


def ask(search: Search, past: list[RunRecord]) -> Answer:
    trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
    return propose(search, trials, lambda _: True)


def run(search: Search) -> tuple[list[RunRecord], Answer]:
    """Return what a search measures one after the other, and why it ends."""
    past: list[RunRecord] = []
    while isinstance(answer := ask(search, past), Proposal):
        past.append(measure(answer))
    return past, answer


def test_every_search_has_a_file_of_its_name() -> None:
    folder = ROOT / "services/orchestrator/domain/search/strategies"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "table"}

    assert files == {strategy.value for strategy in STRATEGIES} == {s.value for s in SEARCHES}


@pytest.mark.parametrize("strategy", SEARCHES)
def test_a_search_ends_within_its_count(strategy: Strategy) -> None:
    search = begin(strategy, max_iterations=9)

    past, answer = run(search)

    assert 0 < len(past) <= search.experiments
    assert isinstance(answer, StopReason)
    assert [run.ordinal for run in past] == list(range(1, len(past) + 1))


@pytest.mark.parametrize("strategy", SEARCHES)
def test_a_search_runs_nothing_twice(strategy: Strategy) -> None:
    past, _ = run(begin(strategy))

    configurations = [(str(each.parameters), each.run.request_divisor) for each in past]
    assert len(set(configurations)) == len(configurations)


@pytest.mark.parametrize("strategy", SEARCHES)
def test_the_same_history_gets_the_same_answer(strategy: Strategy) -> None:
    search = begin(strategy)
    past, _ = run(search)

    answers = [ask(search, past[:count]) for count in (0, 1, len(past) // 2)]
    assert answers == [ask(begin(strategy), past[:count]) for count in (0, 1, len(past) // 2)]
    assert not any(isinstance(answer, Waiting) for answer in answers)


@pytest.mark.parametrize("strategy", SEARCHES)
def test_impossible_configurations_are_not_proposed(strategy: Strategy) -> None:
    answer = propose(begin(strategy), [], lambda _: False)

    assert isinstance(answer, StopReason)


@pytest.mark.parametrize("strategy", SEARCHES)
def test_a_search_says_how_it_proceeds(strategy: Strategy) -> None:
    text = STRATEGIES[strategy].describe(begin(strategy))

    assert text
    assert "\n" not in text


def test_no_code_but_its_own_names_a_strategy() -> None:
    paths = [
        path for name in ("schemas", "shared", "services") for path in ROOT.glob(f"{name}/**/*.py")
    ]
    places = [
        f"{path.relative_to(ROOT)}:{node.lineno} names {node.value.id}.{node.attr}"
        for path in paths
        if not path.relative_to(ROOT).as_posix().startswith(OWN_PLACES)
        and "Strategy." in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Strategy"
        and node.attr in Strategy.__members__
    ]

    assert places == []
