"""What pods on a GPU use of it, or that only the whole GPU's use is known."""

from typing import NamedTuple

from schemas.telemetry.readings import GpuPod, GpuReading, PodUse


class PodReading(NamedTuple):
    """A container and what its pod uses; not `is_own`: what the whole GPU does, for all of them."""

    pod: GpuPod
    use: PodUse
    is_own: bool


def pod_readings(gpu: GpuReading) -> tuple[PodReading, ...] | None:
    """Return the containers that a GPU was given to; None where no kubelet was asked.

    A pod that has the device alone uses what is read of it.
    """
    if gpu.pods is None:
        return None
    is_shared = len({(pod.namespace, pod.pod) for pod in gpu.pods}) > 1
    total_use = PodUse("", gpu.memory_used_mb, gpu.utilization_percent)
    own_uses = {use.uid: use for use in gpu.pod_uses or () if _tells(use)}
    return tuple(
        PodReading(pod, own_uses.get(pod.uid, total_use), pod.uid in own_uses)
        if is_shared
        else PodReading(pod, total_use, is_own=True)
        for pod in gpu.pods
    )


def memory_given_mb(pod: GpuPod, gpu: GpuReading) -> int | None:
    """Return how much of a GPU's memory a pod was given; None: nothing tells."""
    if pod.memory_mb is not None:
        return pod.memory_mb
    if pod.percent is None or gpu.memory_total_mb is None:
        return None
    return gpu.memory_total_mb * pod.percent // 100


def _tells(use: PodUse) -> bool:
    return use.memory_used_mb is not None or use.utilization_percent is not None
