"""Which GPUs of a node have room, best first."""

from collections.abc import Iterable

from schemas.monitoring import ScoredGpu
from schemas.telemetry import GpuReading
from shared.gpu.scoring import availability_score


def available_gpus(
    readings: Iterable[GpuReading],
    unwell: frozenset[str],
    *,
    min_memory_mb: float | None,
    max_utilization_percent: float,
) -> tuple[ScoredGpu, ...]:
    """Those with enough free memory and little enough use; what is unknown is not enough.

    `unwell` names devices that are not to be used, whatever they read.
    """
    found = [
        ScoredGpu(index=gpu.index, uuid=gpu.uuid, score=score)
        for gpu in readings
        if gpu.uuid not in unwell
        and (score := _score(gpu)) is not None
        and gpu.utilization_percent is not None
        and gpu.utilization_percent <= max_utilization_percent
        and (min_memory_mb is None or (gpu.memory_free_mb or 0) >= min_memory_mb)
    ]
    return tuple(sorted(found, key=lambda gpu: (-gpu.score, gpu.index)))


def _score(gpu: GpuReading) -> float | None:
    return availability_score(gpu.utilization_percent, gpu.memory_free_mb, gpu.memory_total_mb)
