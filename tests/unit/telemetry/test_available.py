"""Which GPUs an agent calls available."""

from typing import Any

import pytest

from schemas.telemetry import GpuReading
from services.telemetry.domain.available import available_gpus


def make_reading(index: int, **overrides: Any) -> GpuReading:
    fields: dict[str, Any] = {
        "utilization_percent": 0.0,
        "memory_total_mb": 1000,
        "memory_free_mb": 1000,
    }
    return GpuReading(uuid=f"GPU-{index}", index=index, **{**fields, **overrides})


def test_the_best_score_comes_first_and_equal_ones_by_index() -> None:
    readings = [
        make_reading(0, utilization_percent=50.0),
        make_reading(1, memory_free_mb=500),
        make_reading(3),
        make_reading(2),
    ]

    found = available_gpus(readings, frozenset(), min_memory_mb=None, max_utilization_percent=50.0)

    assert [(gpu.index, round(gpu.score, 6)) for gpu in found] == [
        (2, 1.0),
        (3, 1.0),
        (0, 0.8),
        (1, 0.7),
    ]


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(make_reading(0, utilization_percent=50.1), id="too busy"),
        pytest.param(make_reading(0, memory_free_mb=799), id="too full"),
        pytest.param(make_reading(0, utilization_percent=None), id="unknown use"),
        pytest.param(make_reading(0, memory_free_mb=None), id="unknown memory"),
        pytest.param(make_reading(9), id="unwell"),
    ],
)
def test_what_has_no_room_or_does_not_say_is_left_out(reading: GpuReading) -> None:
    assert (
        available_gpus(
            [reading], frozenset({"GPU-9"}), min_memory_mb=800, max_utilization_percent=50.0
        )
        == ()
    )


def test_exactly_as_much_memory_and_use_as_asked_is_enough() -> None:
    reading = make_reading(0, memory_free_mb=800, utilization_percent=50.0)

    found = available_gpus([reading], frozenset(), min_memory_mb=800, max_utilization_percent=50.0)

    assert [gpu.index for gpu in found] == [0]
