"""Which GPUs a pod had: those that kubelet told of, or none and why."""

import pytest

from schemas.cluster.kubernetes import EnginePod
from schemas.gpus.device_grant import DeviceGrant
from schemas.telemetry.readings import GpuPod
from services.results.domain.pod_devices import ReportedDevice, devices_of

POD = EnginePod(node_id="n1", namespace="engines", pod="e-1-x", container="ome-container", gpus=2)
OWN = GpuPod("engines", "e-1-x", "ome-container")
OTHERS = (GpuPod("engines", "e-1-y", "ome-container"), GpuPod("mine", "e-1-x", "ome-container"))


def gpu(index: int) -> DeviceGrant:
    return DeviceGrant(node_id="n1", uuid=f"GPU-{index}", index=index, name="H200")


def test_device_is_the_pods_for_all_its_life() -> None:
    told = [
        ReportedDevice(gpu(2), None),
        ReportedDevice(gpu(2), ()),
        ReportedDevice(gpu(2), (*OTHERS, OWN)),
        ReportedDevice(gpu(1), (OWN,)),
        ReportedDevice(gpu(1), None),
        ReportedDevice(gpu(0), OTHERS),
    ]

    assert devices_of(POD, told) == ((gpu(1), gpu(2)), "")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([], "no telemetry agent reported from node n1"),
        (
            [ReportedDevice(gpu(0), None)],
            "the agent on node n1 could not ask kubelet which pod has",
        ),
        (
            [ReportedDevice(gpu(0), OTHERS)],
            "kubelet on node n1 told of 0 of the 2 GPUs of pod engines/e-1-x",
        ),
        ([ReportedDevice(gpu(0), (OWN,)), ReportedDevice(gpu(1), None)], "told of 1 of the 2 GPUs"),
        ([ReportedDevice(gpu(i), (OWN,)) for i in range(3)], "told of 3 of the 2 GPUs"),
    ],
)
def test_what_is_not_certain_is_not_guessed(told: list[ReportedDevice], why: str) -> None:
    devices, because = devices_of(POD, told)

    assert devices == ()
    assert why in because
