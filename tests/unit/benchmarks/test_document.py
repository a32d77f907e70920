"""A benchmark as people write it."""

from typing import Any

import pytest

from schemas.errors import ErrorCode
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.document import read_spec
from shared.errors import RefusedError


def test_the_block_of_a_task_file_is_a_benchmark() -> None:
    spec = read_spec(
        {
            "traffic_scenarios": ["D(8,4)"],
            "num_concurrency": [1, 4],
            "max_time_per_iteration": 0.5,
            "max_requests_per_iteration": 50,
            "tool": "builtin",
        }
    )

    assert spec == BenchmarkSpec(
        traffic_scenarios=("D(8,4)",),
        num_concurrency=(1, 4),
        max_time_per_level_seconds=30.0,
        max_requests_per_level=50,
        tool=BenchmarkTool.BUILTIN,
    )


def test_nothing_said_is_the_default() -> None:
    assert read_spec({}) == BenchmarkSpec()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"concurrency": [1]}, "unknown field 'concurrency'"),
        ({"max_time_per_level_seconds": 1, "max_time_per_iteration": 1}, "given twice"),
        ({"traffic_scenarios": ["Q(1)"]}, "a scenario like D(100,100)"),
        ({"num_concurrency": ["many"]}, "Expected `int`, got `str`"),
        ({"max_time_per_iteration": 0}, "> 0.0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(document: dict[str, Any], said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read_spec(document)

    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert said in refused.value.message
