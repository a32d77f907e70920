"""Where a crash is predicted depends on where others were, not on how a range is written."""

from collections.abc import Sequence
from typing import Any

import pytest

from schemas.executor.attempts import FailureKind
from services.orchestrator.domain.plan.plan import make_search
from services.orchestrator.domain.search.crashes import crash_predictor
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.space import Place, Space
from tests.support.worlds.orchestrator_records import make_file

OUT_OF_MEMORY = FailureKind.GPU_OUT_OF_MEMORY
CRASHED, MEASURED = (0.7, 0.8, 1.0), (0.1, 0.2, 0.5)
SHARES = [number / 200 for number in range(201)]


def space_of(**parameters: Any) -> Space:
    search = make_search(make_file(parameters=parameters, optimization={"strategy": "random"}))
    assert search is not None
    return search.space


def span(low: float, high: float, *, log: bool = False) -> dict[str, Any]:
    return {"type": "continuous", "low": low, "high": high, "log": log}


def predicted(
    space: Space,
    *others: Trial,
    mirrored: bool = False,
    seconds: Sequence[float] = (),
    crashed: Sequence[float] = CRASHED,
    measured: Sequence[float] = MEASURED,
) -> list[bool]:
    """For each share of the first range.

    `seconds` are the places of trials in another dimension; the first of them is asked for.
    """
    of = space.dimensions[0].continuous
    assert of is not None

    def place(share: float, *second: float) -> Place:
        share = 1 - share if mirrored else share
        at = of.low * (of.high / of.low) ** share if of.log else of.low + share * (of.high - of.low)
        return (at, *second)

    places = [
        place(share, *seconds[number : number + 1])
        for number, share in enumerate((*crashed, *measured))
    ]
    trials = [
        Trial(ordinal=1, place=at, standing=1, failure=OUT_OF_MEMORY if number < 3 else None)
        for number, at in enumerate(places)
    ]
    would_crash = crash_predictor(space, [*trials, *others])
    return [would_crash(place(share, *seconds[:1])) for share in SHARES]


UNIT = predicted(space_of(x=span(0, 1)))


def test_crash_is_predicted_beyond_crashes_alone() -> None:
    assert [UNIT[round(200 * share)] for share in CRASHED] == [True] * 3
    assert [UNIT[round(200 * share)] for share in MEASURED] == [False] * 3
    assert sorted(UNIT) == UNIT


def test_crash_border_is_halfway() -> None:
    found = predicted(space_of(x=span(0, 1)), crashed=(1.0, 0.8, 0.6), measured=(0.0, 0.2, 0.4))

    assert found[:100] == [False] * 100
    assert found[101:] == [True] * 100


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Trial(ordinal=9, place=None, failure=OUT_OF_MEMORY), id="of another space"),
        pytest.param(
            Trial(ordinal=9, place=(0.0,), standing=9, failure=FailureKind.NODE_LOST),
            id="a node's fault",
        ),
        pytest.param(Trial(ordinal=9, place=(1.0,)), id="still under way"),
    ],
)
def test_unmeasured_trials_teach_no_crash(other: Trial) -> None:
    assert predicted(space_of(x=span(0, 1)), other) == UNIT


@pytest.mark.parametrize(
    ("values", "mirrored"),
    [
        pytest.param(span(0, 1), True, id="turned around"),
        pytest.param(span(-5, 15), False, id="around 0"),
        pytest.param(span(1000, 1001), False, id="far from 0"),
        pytest.param(span(0.01, 100, log=True), False, id="by its logarithm"),
    ],
)
def test_position_in_the_range_alone_counts(values: dict[str, Any], mirrored: bool) -> None:
    assert predicted(space_of(x=values), mirrored=mirrored) == UNIT


def test_listed_numbers_are_spaced_as_in_a_range() -> None:
    places = (4, 1, 3, 4, 3, 4)

    listed, ranged = (
        predicted(space_of(x=span(0, 1), y=values), seconds=places)
        for values in (list(range(5)), span(0, 4))
    )

    assert listed == ranged
    assert listed != UNIT


@pytest.mark.parametrize(
    ("alone", "at"),
    [
        pytest.param([7], 0, id="a number"),
        pytest.param(["fcfs"], 0, id="a name"),
        pytest.param(span(7, 7), 7.0, id="a range"),
    ],
)
def test_what_has_one_value_only_changes_nothing(alone: Any, at: float) -> None:
    assert predicted(space_of(x=span(0, 1), y=alone), seconds=[at] * 6) == UNIT
