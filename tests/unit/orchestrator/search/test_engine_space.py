"""Several engines in one search: what each has alone never reaches another."""

import math
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.task.objectives import Objective
from schemas.task.strategies import Strategy
from schemas.task.task_file import StopReason, TaskFile
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.plan.expansion import expand, find_axes
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.history import RunRecord, Trial, trials_of
from services.orchestrator.domain.search.propose import propose
from services.orchestrator.domain.search.search import Proposal, Search, Waiting
from services.orchestrator.domain.search.space import draw_new, middle, space_of
from shared.engines.variants import variant_of
from tests.support.worlds.orchestrator_records import make_file
from tests.unit.orchestrator.search.test_search import past_of

SEARCHES = [strategy.value for strategy in Strategy if strategy.traits.is_search]
NAMES = ("a", "b", "c")


def several(*engines: dict[str, Any], **overrides: Any) -> TaskFile:
    content = {"engines": list(engines), **overrides}
    return make_file(**content)


def values_of_length(number: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 9), min_size=1, max_size=number, unique=True)


@st.composite
def task_files(draw: st.DrawFn, strategy: str = "grid_search") -> TaskFile:
    """One to three engines, with tags, parameters and variables of their own and of all."""
    engines = []
    for place in range(draw(st.integers(1, 3))):
        engine: dict[str, Any] = {"base_runtime": NAMES[place]}
        if draw(st.booleans()):
            engine["runtime_image_tag"] = [f"v{n}" for n in range(draw(st.integers(1, 3)))]
        own_names = draw(st.lists(st.sampled_from(["x", "y"]), unique=True))
        engine["parameters"] = {name: draw(values_of_length(3)) for name in own_names}
        if draw(st.booleans()):
            engine["env"] = {f"{NAMES[place].upper()}_ONE": draw(values_of_length(2))}
        engines.append(engine)
    common = {"s": draw(values_of_length(2))} if draw(st.booleans()) else {}
    return several(*engines, parameters=common, optimization={"strategy": strategy})


def check_own(task: TaskFile, point: Point) -> None:
    """Assert that a configuration has what its engine has, and nothing of another."""
    place = NAMES.index(point.engine["base_runtime"])
    engine = task.engines[place]
    assert point.parameters.keys() == task.parameters.keys() | engine.parameters.keys()
    assert point.env.keys() == task.env.keys() | engine.env.keys()
    assert ("runtime_image_tag" in point.engine) == bool(engine.runtime_image_tag)
    for name, values in engine.parameters.items():
        assert point.parameters[name] in list(values)  # type: ignore[arg-type]


def count(task: TaskFile) -> int:
    return sum(
        math.prod(
            len(values)
            for values in (
                *task.parameters.values(),
                *engine.parameters.values(),
                *engine.env.values(),
                engine.runtime_image_tag or (None,),
            )
            if isinstance(values, tuple)
        )
        for engine in task.engines
    )


@given(task_files())
def test_each_of_a_grid_has_only_its_own_parameters(task: TaskFile) -> None:
    grid = expand(find_axes(task), None)

    for point in grid.points:
        check_own(task, point)
    assert len({repr(point.show()) for point in grid.points}) == grid.total == count(task)


@given(task_files())
def test_a_cut_grid_has_some_of_each_engine(task: TaskFile) -> None:
    grid = expand(find_axes(task), None)
    variants = {point.variant for point in grid.points}

    cut = expand(find_axes(task), len(variants))

    assert {point.variant for point in cut.points} == variants


@given(task_files(strategy="random"), st.integers(0, 1000))
def test_places_and_points_are_the_same(task: TaskFile, seed: int) -> None:
    space = space_of(find_axes(task))
    places = list(space.places())

    assert len(set(places)) == len(places) == space.size == count(task)
    for place in (*places, space.draw(Random(seed))):
        check_own(task, space.point(place))
        assert space.place(space.point(place).show()) == place
    for engine in space.engines:
        assert space.engine_at(middle(space, engine)) == engine
        drawn = draw_new(space, Random(seed), lambda _: True, [engine])
        assert drawn is not None
        assert space.engine_at(drawn) == engine


@given(task_files(strategy="random"))
def test_single_values_have_every_value_of_every_engine(task: TaskFile) -> None:
    space = space_of(find_axes(task))

    found = [set(place) for place in zip(*map(space.place, _shown(space)), strict=True)]

    for dimension, places in zip(space.dimensions, found, strict=True):
        assert set(range(len(dimension.values))) <= places


def _shown(space: Any) -> list[dict[str, Any]]:
    return [point.show() for point in space.single_values()]


@pytest.mark.parametrize("strategy", SEARCHES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_strategy_proposes_each_once(strategy: str, data: st.DataObject) -> None:
    task = data.draw(task_files(strategy=strategy))
    search = make_search(task)
    assert search is not None

    proposals, stopped = run(search, lambda point: float(len(repr(point.show()))))

    for proposal in proposals:
        check_own(task, proposal.point)
    if strategy != "successive_halving":
        shown = Counter(repr(proposal.point.show()) for proposal in proposals)
        assert set(shown.values()) == {1}
        assert len(proposals) == min(search.experiments, count(task))
    assert stopped in {StopReason.SPACE_EXHAUSTED, StopReason.MAX_ITERATIONS}


def run(search: Search, measure: Any, is_possible: Any = None) -> tuple[list[Proposal], StopReason]:
    """The whole search; the smallest measured is best, and screened runs stand among themselves."""
    proposals: list[Proposal] = []
    past: list[RunRecord] = []
    while True:
        trials = trials_of((Objective.MINIMIZE_LATENCY,), search.space, past)
        step = propose(search, trials, is_possible or (lambda _: True))
        assert not isinstance(step, Waiting)
        if isinstance(step, StopReason):
            return proposals, step
        proposals.append(step)
        ended = past_of(step.ordinal, step.point, measure(step.point))
        past.append(ended_with_divisor(ended, step.divisor))


def ended_with_divisor(ended: RunRecord, divisor: int) -> RunRecord:
    return replace(ended, run=replace(ended.run, request_divisor=divisor))


def make_tuned(strategy: str, **optimization: Any) -> Search:
    task = several(
        {"base_runtime": "a", "parameters": {"x": list(range(8)), "y": list(range(8))}},
        {"base_runtime": "b", "parameters": {"x": list(range(8)), "z": list(range(8))}},
        parameters={"s": [0, 1, 2, 3]},
        optimization={"strategy": strategy, **optimization},
    )
    search = make_search(task)
    assert search is not None
    return search


def score_tuned(point: Point) -> float:
    """`b` is behind as it comes and ahead where it is tuned."""
    values: dict[str, float] = point.parameters
    if point.engine["base_runtime"] == "a":
        return 10 + abs(values["x"] - 3) * 0.1 + abs(values["s"] - 1)
    return 6 + abs(values["x"] - 6) + abs(values["z"] - 5) * 0.8 + abs(values["s"] - 1)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["bayesian", "auto"])
def test_search_finds_the_engine_that_is_better_tuned(strategy: str) -> None:
    for seed in (1, 2):
        proposals, _ = run(make_tuned(strategy, seed=seed, max_iterations=45), score_tuned)

        best = min(proposals, key=lambda proposal: score_tuned(proposal.point))

        assert best.point.engine["base_runtime"] == "b"


@pytest.mark.parametrize("strategy", SEARCHES)
def test_no_engine_is_left_untried(strategy: str) -> None:
    proposals, _ = run(make_tuned(strategy, max_iterations=9), score_tuned)

    tried = Counter(proposal.point.engine["base_runtime"] for proposal in proposals)

    assert min(tried["a"], tried["b"]) >= 3


@pytest.mark.parametrize("strategy", SEARCHES)
def test_search_goes_on_without_an_engine(strategy: str) -> None:
    def is_here(point: Point) -> bool:
        return bool(point.engine["base_runtime"] == "a")

    proposals, _ = run(make_tuned(strategy, max_iterations=12), score_tuned, is_here)

    assert len(proposals) >= 12
    assert all(is_here(proposal.point) for proposal in proposals)


def test_two_versions_with_equal_names_are_two_engines() -> None:
    task = several(
        {"base_runtime": "a", "runtime_image_tag": ["v1"], "parameters": {"old": [1]}},
        {"base_runtime": "a", "runtime_image_tag": ["v2"], "parameters": {"new": [1]}},
        optimization={"strategy": "random"},
    )

    space = space_of(find_axes(task))

    shown = [space.point(place).show() for place in space.places()]
    assert shown == [
        {"base_runtime": "a", "runtime_image_tag": "v1", "old": 1},
        {"base_runtime": "a", "runtime_image_tag": "v2", "new": 1},
    ]
    assert [space.place(parameters) for parameters in shown] == list(space.places())


def test_a_variable_that_is_not_of_the_space_has_no_place() -> None:
    task = several({"base_runtime": "a"}, optimization={"strategy": "random"})
    space = space_of(find_axes(task))

    assert space.place({"base_runtime": "a"}) == (0,)
    assert space.place({"base_runtime": "a", "env.NCCL_ALGO": "Ring"}) is None


def test_crashes_of_one_engine_are_learned_for_it_alone() -> None:
    from services.orchestrator.domain.search.crashes import crash_predictor

    task = several(
        {"base_runtime": "a", "parameters": {"x": [1, 2, 3, 4]}},
        {"base_runtime": "b", "parameters": {"x": [1, 2, 3, 4]}},
        optimization={"strategy": "random"},
    )
    space = space_of(find_axes(task))
    places = list(space.places())
    failed = past_of(1, space.point(places[0]), None).failure
    trials = [
        Trial(ordinal=number, place=place, failure=failed, has_failed=True, standing=3)
        for number, place in enumerate(places[4:7], start=1)
    ] + [
        Trial(ordinal=number, place=place, standing=number)
        for number, place in enumerate(places[:3], start=4)
    ]

    would_crash = crash_predictor(space, trials)

    assert would_crash(places[7])
    assert not would_crash(places[3])
    assert variant_of(space.point(places[7]).show()) == ("b", None, None)
