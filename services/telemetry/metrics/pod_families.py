"""What pods use of GPUs, as metrics: where several share one, DCGM's names cannot say it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import Metric

from schemas.telemetry.readings import GpuReading
from shared.gpu.pod_readings import PodReading, memory_given_mb, pod_readings

MEBIBYTE: Final = 1 << 20
# What of a device's labels says where it is.
PLACE: Final = ("Hostname", "UUID", "gpu", "modelName", "GPU_I_ID", "simulated")


class _Family(NamedTuple):
    """One metric; `read` gives None for what is unknown."""

    name: str
    help: str
    read: Callable[[PodReading, GpuReading], float | None]


def _bytes(mebibytes: int | None) -> float | None:
    return None if mebibytes is None else float(mebibytes * MEBIBYTE)


FAMILIES: Final = (
    _Family(
        "gpusteward_pod_gpu_utilization_percent",
        'GPU utilization by the pod (in %); with reading="gpu" the whole GPU\'s, which it shares.',
        lambda reading, _: reading.use.utilization_percent,
    ),
    _Family(
        "gpusteward_pod_gpu_memory_used_bytes",
        'GPU memory that the pod uses; with reading="gpu" the whole GPU\'s, which it shares.',
        lambda reading, _: _bytes(reading.use.memory_used_mb),
    ),
    _Family(
        "gpusteward_pod_gpu_memory_given_bytes",
        "GPU memory that the pod was given.",
        lambda reading, gpu: _bytes(memory_given_mb(reading.pod, gpu)),
    ),
)


def pod_families(rows: Iterable[tuple[GpuReading, dict[str, str]]]) -> Iterator[Metric]:
    """Make the metrics of GPUs, which come with the labels of their devices."""
    entries = [
        (gpu, reading, _labels(reading, labels))
        for gpu, labels in rows
        for reading in _by_pod(pod_readings(gpu) or ())
    ]
    for family in FAMILIES:
        metric = Metric(family.name, family.help, "gauge")
        for gpu, reading, labels in entries:
            if (value := family.read(reading, gpu)) is not None:
                metric.add_sample(family.name, labels, value)
        if metric.samples:
            yield metric


def _by_pod(readings: Iterable[PodReading]) -> Iterable[PodReading]:
    """Leave the first of a pod's containers: the use is their pod's, and must not count twice."""
    first: dict[tuple[str, str], PodReading] = {}
    for reading in readings:
        first.setdefault((reading.pod.namespace, reading.pod.pod), reading)
    return first.values()


def _labels(reading: PodReading, device: dict[str, str]) -> dict[str, str]:
    pod = reading.pod
    place = {name: device[name] for name in PLACE if name in device}
    return place | {
        "namespace": pod.namespace,
        "pod": pod.pod,
        "owner": pod.owner,
        "kind": pod.kind,
        "reading": "own" if reading.is_own else "gpu",
    }
