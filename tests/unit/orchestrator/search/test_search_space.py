"""The configurations that a search may try, as places of numbers."""

from random import Random
from typing import Any

import pytest

from services.orchestrator.domain.plan.expansion import find_axes
from services.orchestrator.domain.search.space import Space, draw_new, middle, space_of
from tests.support.worlds.orchestrator_records import make_file

MIXED: dict[str, Any] = {
    "slots": {"type": "integer", "low": 2, "high": 64, "step": 2},
    "fraction": {"type": "continuous", "low": 0.5, "high": 0.9},
    "rate": {"type": "continuous", "low": 0.01, "high": 100, "log": True},
    "tp": [8, 1, 4, 2, 4],
    "policy": ["lpm", "fcfs"],
    "switch": [True, False],
    "mode": {"type": "categorical", "values": [3, 1, 2]},
}


def space(parameters: dict[str, Any]) -> Space:
    file = make_file(parameters=parameters, optimization={"strategy": "random"})
    return space_of(find_axes(file))


def test_numbers_are_sorted_names_keep_their_order() -> None:
    dimensions = {each.name: each for each in space(MIXED).dimensions}

    assert [name for name, each in dimensions.items() if each.is_ordered] == [
        *("slots", "fraction", "rate", "tp"),
    ]
    assert list(dimensions["slots"].values) == list(range(2, 65, 2))
    assert dimensions["tp"].values == (1, 2, 4, 8)
    assert dimensions["policy"].values == ("lpm", "fcfs")
    assert dimensions["mode"].values == (3, 1, 2)


def test_the_middle_is_of_what_has_one() -> None:
    assert middle(space(MIXED)) == (15, 0.7, 1.0, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("slots", 2, 0),
        ("slots", 64, 31),
        ("slots", 3, None),
        ("slots", 4.0, None),
        ("fraction", 0.5, 0.5),
        ("fraction", 0.9, 0.9),
        ("fraction", 0.49, None),
        ("fraction", 0.91, None),
        ("fraction", "0.6", None),
        ("tp", 8, 3),
        ("tp", 3, None),
        ("switch", False, 1),
        ("switch", 0, None),
        ("policy", "fcfs", 1),
    ],
)
def test_a_value_has_its_place_or_none(name: str, value: object, place: float | None) -> None:
    (dimension,) = (each for each in space(MIXED).dimensions if each.name == name)

    assert dimension.at(value) == place


def test_configuration_keeps_its_place() -> None:
    found = space(MIXED)
    place = found.draw(Random(3))
    shown = found.point(place).show()

    assert found.place(shown) == place
    assert found.place({**shown, "tp": 3}) is None
    assert found.place({name: shown[name] for name in shown if name != "tp"}) is None


def test_continuous_space_cannot_be_counted() -> None:
    assert space(MIXED).size is None
    assert space({"a": [1, 2], "b": [1, 2, 3]}).size == 6


def test_samples_have_every_value_and_both_ends() -> None:
    found = [point.show() for point in space(MIXED).single_values()]

    assert {each["slots"] for each in found} == {2, 64}
    assert {each["fraction"] for each in found} == {0.5, 0.9}
    assert {each["tp"] for each in found} == {1, 2, 4, 8}
    assert len(found) == 1 + 1 + 1 + 1 + 3 + 1 + 1 + 2


def test_draws_stay_in_range_on_a_log_scale() -> None:
    random = Random(1)
    rates = [space(MIXED).draw(random)[2] or 0.0 for _ in range(300)]

    assert all(0.01 <= rate <= 100 for rate in rates)
    assert 100 < sum(rate < 1 for rate in rates) < 200


def test_the_last_one_that_is_new_is_drawn() -> None:
    found = space({"a": [1, 2], "b": [1, 2]})

    assert draw_new(found, Random(1), lambda place: place == (1, 0)) == (1, 0)
    assert draw_new(found, Random(1), lambda _: False) is None
