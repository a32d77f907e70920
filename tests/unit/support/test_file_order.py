"""Files that compute run beside those that wait."""

from pathlib import Path

from tests.support.file_order import spread

WAITING = [Path(f"tests/real/test_{number}.py") for number in range(8)]
COMPUTING = [Path(f"tests/unit/a/test_{number}.py") for number in range(16)]
UNIT = Path("tests/unit")


def test_heavy_files_are_spread_evenly() -> None:
    order = spread([*WAITING, *COMPUTING], UNIT)

    assert sorted(order) == sorted([*WAITING, *COMPUTING])
    assert order[-4:] == COMPUTING[-4:]
    for start in range(0, 18, 5):
        part = order[start : start + 5]
        assert 1 <= len([file for file in part if file in WAITING]) <= 3


def test_each_kind_keeps_its_own_order() -> None:
    order = spread([*WAITING, *COMPUTING], UNIT)

    assert [file for file in order if file in WAITING] == WAITING
    assert [file for file in order if file in COMPUTING] == COMPUTING


def test_an_order_that_begins_with_them_stays() -> None:
    assert spread([*COMPUTING, *WAITING], UNIT) == [*COMPUTING, *WAITING]


def test_without_one_of_the_kinds_nothing_is_moved() -> None:
    assert spread(WAITING, UNIT) == WAITING
    assert spread(COMPUTING, UNIT) == COMPUTING
    assert spread([], UNIT) == []
