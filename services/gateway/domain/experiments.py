"""An experiment as people see it: joined from what its owners know."""

from collections.abc import Sequence
from typing import Any

import msgspec

from schemas.orchestrator import ExperimentView
from schemas.results import SummaryView
from schemas.scheduler_views import Explanation


def experiment_detail(
    view: ExperimentView,
    summary: SummaryView | None,
    explanation: Explanation | None,
    *,
    missing: Sequence[str] = (),
    levels: bool = False,
) -> dict[str, Any]:
    """The view as plain data with `gpu_monitoring`, also within `metrics`, and `explanation`.

    `levels` adds the `benchmark` with every level. `missing` names services that did not answer.
    """
    detail: dict[str, Any] = msgspec.to_builtins(view)
    if summary is not None:
        monitoring = msgspec.to_builtins(summary.gpu_monitoring)
        metrics = detail["metrics"] or msgspec.to_builtins(summary.metrics)
        detail["metrics"] = {**metrics, "gpu_monitoring": monitoring}
        detail["gpu_monitoring"] = monitoring
        if levels:
            detail["benchmark"] = summary.benchmark
    if explanation is not None:
        detail["explanation"] = msgspec.to_builtins(explanation)
        if not view.waiting_reasons:
            detail["waiting_reasons"] = detail["explanation"]["reasons"]
    if missing:
        detail["missing"] = list(missing)
    return detail
