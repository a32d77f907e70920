"""One score for everybody who ranks or shows devices."""

import pytest

from shared.gpu.scoring import availability_score


@pytest.mark.parametrize(
    ("utilization", "free", "total", "want"),
    [
        pytest.param(0.0, 80_000, 80_000, 1.0, id="all of it is free"),
        pytest.param(100.0, 0, 80_000, 0.0, id="nothing of it is free"),
        pytest.param(25.0, 40_000, 80_000, 0.6 * 0.5 + 0.4 * 0.75, id="memory counts more"),
        pytest.param(None, 40_000, 80_000, None, id="utilization unknown"),
        pytest.param(25.0, None, 80_000, None, id="free memory unknown"),
        pytest.param(25.0, 0, None, None, id="total memory unknown"),
        pytest.param(25.0, 0, 0, None, id="a device without memory of its own"),
    ],
)
def test_score_weighs_memory_and_idle_time(
    utilization: float | None, free: int | None, total: int | None, want: float | None
) -> None:
    found = availability_score(utilization, free, total)

    assert found == (pytest.approx(want) if want is not None else None)


def test_the_weights_may_be_others() -> None:
    found = availability_score(80.0, 20_000, 80_000, memory_weight=1.0, utilization_weight=0.0)

    assert found == pytest.approx(0.25)
