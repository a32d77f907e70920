"""Levels of a benchmark, made by hand."""

from datetime import UTC, datetime
from typing import Any

from schemas.task.benchmark import LevelResult, LevelStats
from shared.benchmarks.metrics import distribution

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_level(**overrides: Any) -> LevelResult:
    """Ten requests of one second, the first token after 0.2 s, eleven tokens."""
    fields: dict[str, Any] = {
        "scenario": "D(10,11)",
        "num_concurrency": 2,
        "started_at": NOW,
        "finished_at": NOW,
        "run_duration": 5.0,
        "num_requests": 10,
        "num_completed_requests": 10,
        "num_error_requests": 0,
        "error_rate": 0.0,
        "requests_per_second": 2.0,
        "mean_output_throughput_tokens_per_s": 22.0,
        "mean_total_tokens_throughput_tokens_per_s": 42.0,
        "stats": LevelStats(
            ttft=distribution([0.2] * 10),
            tpot=distribution([0.08] * 10),
            e2e_latency=distribution([1.0] * 10),
            num_output_tokens=distribution([11.0] * 10),
        ),
    }
    return LevelResult(**fields | overrides)
