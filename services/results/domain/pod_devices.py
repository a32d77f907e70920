"""Which GPUs the pod of an engine had, by what kubelet reported to the agent on its node."""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.cluster.kubernetes import EnginePod
from schemas.gpus.device_grant import DeviceGrant
from schemas.telemetry.readings import GpuPod


class ReportedDevice(NamedTuple):
    """A device of the node, and whose it was in some samples; None: kubelet was not queried."""

    device: DeviceGrant
    pods: tuple[GpuPod, ...] | None


def devices_of(
    pod: EnginePod, reported: Iterable[ReportedDevice]
) -> tuple[tuple[DeviceGrant, ...], str]:
    """Return a pod's devices by index; or none, and why they are unknown.

    `reported` is all of the attempt's time. What a pod has does not change while it lives, but may
    become known device by device: fewer or more than it requested is no answer.
    """
    container = (pod.namespace, pod.pod, pod.container)
    devices = list(reported)
    if not devices:
        return (), f"no telemetry agent reported from node {pod.node_id}"
    if all(pods is None for _, pods in devices):
        return (), f"the agent on node {pod.node_id} could not ask kubelet which pod has which GPU"
    had = {
        device.uuid: device
        for device, pods in devices
        if any((user.namespace, user.pod, user.container) == container for user in pods or ())
    }
    if len(had) != pod.gpus:
        return (), (
            f"kubelet on node {pod.node_id} told of {len(had)} of the {pod.gpus} GPUs "
            f"of pod {pod.namespace}/{pod.pod}"
        )
    return tuple(sorted(had.values(), key=lambda device: (device.index, device.uuid))), ""
