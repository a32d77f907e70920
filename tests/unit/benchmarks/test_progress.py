"""How far a benchmark is."""

import pytest

from shared.benchmarks.progress import overall_fraction


@pytest.mark.parametrize(
    ("level", "done", "elapsed_seconds", "is_measuring", "want"),
    [
        pytest.param(1, 0, 0.0, True, 0.0, id="begin"),
        pytest.param(1, 5, 0.0, True, 0.25, id="half of the requests of the first of two"),
        pytest.param(2, 5, 99.0, False, 0.5, id="warm-up counts nothing"),
        pytest.param(2, 1, 7.5, True, 0.875, id="by time where that is further"),
        pytest.param(2, 10, 60.0, True, 1.0, id="end"),
    ],
)
def test_progress_runs_over_all_levels(
    level: int, done: int, elapsed_seconds: float, is_measuring: bool, want: float
) -> None:
    fraction = overall_fraction(
        level_no=level,
        levels_total=2,
        done_requests=done,
        total_requests=10,
        elapsed_seconds=elapsed_seconds,
        level_limit_seconds=10.0,
        is_measuring=is_measuring,
    )

    assert fraction == want


def test_level_without_requests_ends_at_once() -> None:
    fraction = overall_fraction(
        level_no=1,
        levels_total=2,
        done_requests=0,
        total_requests=0,
        elapsed_seconds=0.0,
        level_limit_seconds=10.0,
        is_measuring=True,
    )

    assert fraction == 0.5
