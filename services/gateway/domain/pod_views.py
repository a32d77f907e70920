"""Pods on a GPU, with what each uses of it."""

from schemas.gateway.views import GpuPodView
from schemas.results.series import WhoseReading
from schemas.telemetry.readings import GpuReading
from shared.gpu.pod_readings import memory_given_mb, pod_readings


def pod_views(gpu: GpuReading) -> tuple[GpuPodView, ...] | None:
    """Return the containers that a GPU was given to; None where no kubelet was asked."""
    readings = pod_readings(gpu)
    if readings is None:
        return None
    return tuple(
        GpuPodView(
            namespace=pod.namespace,
            pod=pod.pod,
            container=pod.container,
            kind=pod.kind,
            percent=pod.percent,
            memory_given_mb=memory_given_mb(pod, gpu),
            owner=pod.owner,
            reading=WhoseReading.OWN if is_own else WhoseReading.GPU,
            memory_used_mb=use.memory_used_mb,
            utilization_percent=use.utilization_percent,
        )
        for pod, use, is_own in readings
    )
