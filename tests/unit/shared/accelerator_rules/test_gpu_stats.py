"""Shares of memory where something is unknown."""

import pytest

from shared.gpu.stats import memory_usage_percent


@pytest.mark.parametrize(
    ("used_mb", "total_mb", "want"),
    [
        pytest.param(250.0, 1000.0, 25.0, id="known"),
        pytest.param(0.0, 1000.0, 0.0, id="nothing used"),
        pytest.param(None, 1000.0, None, id="use unknown"),
        pytest.param(250.0, None, None, id="size unknown"),
        pytest.param(0.0, 0.0, None, id="no memory of its own"),
    ],
)
def test_use_is_a_share_of_the_total_or_unknown(
    used_mb: float | None, total_mb: float | None, want: float | None
) -> None:
    assert memory_usage_percent(used_mb, total_mb) == want
