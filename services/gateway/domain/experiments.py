"""An experiment as people see it: joined from what its owners know."""

from collections.abc import Sequence
from typing import Any

from msgspec import convert
from msgspec.structs import asdict

from schemas.gateway.views import ExperimentDetail, MeasuredMetrics
from schemas.gpus.gpu_info import GpuInfo
from schemas.orchestrator.views import ExperimentView
from schemas.results.measurements import GpuMemoryTrend, GpuMonitoring, SummaryView
from schemas.scheduler.views import Explanation
from schemas.task.benchmark import BenchmarkResult
from shared.gpu.info import gpu_info_of


def experiment_detail(
    view: ExperimentView,
    summary: SummaryView | None,
    explanation: Explanation | None,
    *,
    missing: Sequence[str] = (),
    levels: bool = False,
    failure_memory: Sequence[GpuMemoryTrend] = (),
) -> ExperimentDetail:
    """The view with `gpu_monitoring`, also within `metrics`, and `explanation`.

    In a cluster `gpu_info` has the devices that the results know. `levels` adds the `benchmark`
    with every level. `missing` names services that did not answer.
    """
    fields: dict[str, Any] = {name: getattr(view, name) for name in view.__struct_fields__}
    metrics = view.metrics
    if summary is not None:
        metrics = metrics or summary.metrics
        fields["gpu_monitoring"] = summary.gpu_monitoring
        fields["gpu_info"] = _with_devices(view.gpu_info, summary.gpu_monitoring)
        if levels and summary.benchmark:
            fields["benchmark"] = convert(summary.benchmark, BenchmarkResult)
    if metrics is not None:
        measured = asdict(metrics) | {"gpu_monitoring": fields["gpu_monitoring"]}
        fields["metrics"] = MeasuredMetrics(**measured)
    if explanation is not None and not view.waiting_reasons:
        fields["waiting_reasons"] = explanation.reasons
    return ExperimentDetail(
        **fields,
        explanation=explanation,
        missing=tuple(missing),
        image_digest=_image_digest(view, summary),
        dataset=None if summary is None else summary.dataset,
        trace=None if summary is None else summary.trace,
        failure_memory=tuple(failure_memory),
    )


def _image_digest(view: ExperimentView, summary: SummaryView | None) -> str | None:
    """Return the digest of the measured attempt, else of the newest that had one."""
    if summary is not None:
        return summary.image_digest
    attempts = sorted(view.attempts, key=lambda attempt: attempt.attempt_number, reverse=True)
    return next((attempt.image_digest for attempt in attempts if attempt.image_digest), None)


def _with_devices(info: GpuInfo | None, monitoring: GpuMonitoring) -> GpuInfo | None:
    """Add the devices of a cluster's experiment, whose grant names none."""
    if info is None or info.details or not monitoring.devices:
        return info
    return gpu_info_of(monitoring.devices, count=info.count, world_size=info.world_size)
