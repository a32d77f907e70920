"""A task's experiments run on one model of GPU, so that their results are comparable."""

from collections.abc import Sequence

from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuModel
from services.orchestrator.domain.records import Task
from shared.gpu.model_names import memory_size, model_of_instance


def model_of(
    task: Task, devices: Sequence[DeviceGrant], cluster: ClusterPlacement | None
) -> GpuModel | None:
    """Return what was granted; None where it is not known, or does not matter to the task.

    A MIG instance is named after its GPU, and its memory follows from the profile.
    """
    if task.file.gpus is not None and task.file.gpus.mixed_models:
        return None
    if not devices:
        name = cluster.gpu_model if cluster is not None else None
        return GpuModel(name=name) if name else None
    first = devices[0]
    return GpuModel(
        name=model_of_instance(first.name),
        memory_total_mb=first.memory_total_mb if first.mig_profile is None else None,
    )


def is_other_model(pinned: GpuModel | None, granted: GpuModel) -> bool:
    if pinned is None or pinned.name != granted.name:
        return pinned is not None
    sizes_mb = [pinned.memory_total_mb, granted.memory_total_mb]
    return len({memory_size(size_mb) for size_mb in sizes_mb if size_mb is not None}) > 1
