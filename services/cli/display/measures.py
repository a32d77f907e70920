"""The columns of what experiments measured."""

from collections.abc import Sequence
from typing import Final

from schemas.orchestrator.views import ExperimentView
from schemas.task.benchmark import BenchmarkMetrics
from services.cli.display.columns import UNKNOWN
from services.cli.display.output import number

_OF_TOKENS: Final = frozenset({"ttft ms", "tpot ms", "output tok/s", "per GPU"})
_OF_ITEMS: Final = frozenset({"items/s", "max items per GPU"})


def measure_headings(experiments: Sequence[ExperimentView]) -> list[str]:
    """Return the columns of what was measured: of tokens, or of items where answers have none."""
    measured = [experiment.metrics for experiment in experiments if experiment.metrics is not None]
    has_items = any(metrics.mean_items_per_second is not None for metrics in measured)
    left_out = _OF_TOKENS if has_items else _OF_ITEMS
    return [heading for heading in metric_cells(None) if heading not in left_out]


def metric_cells(metrics: BenchmarkMetrics | None) -> dict[str, str]:
    """Return by column served levels of all, then what was measured in them; latencies to the first
    and per token in milliseconds.
    """
    measures = metrics or BenchmarkMetrics()
    levels = measures.total_levels
    return {
        "levels": f"{levels - len(measures.failed_levels)}/{levels}" if levels else UNKNOWN,
        "ttft ms": _milliseconds(measures.mean_ttft),
        "tpot ms": _milliseconds(measures.mean_tpot),
        "e2e s": number(measures.mean_e2e_latency, 3),
        "e2e p99 s": number(measures.p99_e2e_latency, 3),
        "items/s": number(measures.mean_items_per_second, 1),
        "max items per GPU": number(measures.max_items_per_second_per_gpu, 1),
        "output tok/s": number(measures.mean_output_throughput, 1),
        "per GPU": number(measures.mean_output_throughput_per_gpu, 1),
        "max total tok/s": number(measures.max_total_throughput, 1),
        "max per GPU": number(measures.max_total_throughput_per_gpu, 1),
        "requests": (
            UNKNOWN
            if metrics is None
            else f"{measures.total_completed_requests}/{measures.total_requests}"
        ),
    }


def _milliseconds(seconds: float | None) -> str:
    return number(seconds * 1000 if seconds is not None else None, 1)
