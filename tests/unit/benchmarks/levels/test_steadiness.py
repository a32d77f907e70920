"""The start that is cut off, drift, and Little's law."""

import random

import pytest

from shared.benchmarks.levels.steadiness import drift, little_error, transient


def noise(count: int, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(1.0, 0.2) for _ in range(count)]


def test_a_slow_start_is_cut_off_and_little_more() -> None:
    seconds = [5.0] * 20 + noise(180, seed=1)

    assert 20 <= transient(seconds) <= 60


def test_of_steady_levels_few_are_cut_and_few_drift() -> None:
    cut = [transient(noise(100, seed)) for seed in range(200)]
    drifts = [drift(noise(100, seed)) for seed in range(200)]

    assert sum(1 for each in cut if each) <= 10
    assert sum(1 for each in drifts if each) <= 10


def test_a_queue_that_grows_drifts() -> None:
    growing = [1 + place / 100 + value / 10 for place, value in enumerate(noise(100, seed=2))]

    found = drift(growing)

    assert found is not None
    assert found > 0.3


def test_too_few_requests_say_nothing() -> None:
    assert drift([1.0] * 39) is None
    assert drift([1.0] * 40) == 0.0
    assert transient([9.0] * 10 + [1.0] * 29) == 0


def test_littles_law_holds_where_all_is_counted() -> None:
    assert little_error(8, 4, 2) == 0
    assert little_error(8, 3, 2) == pytest.approx(0.25)
    assert little_error(0, 3, 2) is None
