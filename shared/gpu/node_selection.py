"""A choice of a node for an inference service as text, in the form that operators know."""

from collections.abc import Iterator
from typing import Final

from schemas.cluster.node_selection import NodeSelection

TITLE: Final = "=== GPU Node Selection ==="


def selection_lines(required_gpus: int, selection: NodeSelection) -> Iterator[str]:
    """The block with what was requested, what was found, and what is free there."""
    yield TITLE
    yield f"Looking for node with {required_gpus} idle GPU(s)..."
    if selection.node_id is None:
        yield f"No node selected, left to Kubernetes: {selection.message}"
    else:
        yield f"Selected node '{selection.node_id}' for deployment:"
        if (summary := selection.summary) is not None:
            yield f"  - Allocatable GPUs: {summary.allocatable_gpus}/{summary.total_gpus}"
            yield f"  - Idle GPUs: {summary.idle_gpu_count}"
            yield f"  - Avg Utilization: {_percent(summary.avg_utilization_percent)}"
            yield f"  - Avg Memory Usage: {_percent(summary.avg_memory_usage_percent)}"
        yield f"✓ Selected node: {selection.node_id}"
    yield "=" * len(TITLE)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}%"
