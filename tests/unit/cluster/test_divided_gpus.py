"""What a node's view tells of GPUs that are shared, refused, or devices of drivers."""

from typing import Any

import msgspec
import pytest

from schemas.cluster.nodes import GpuSharing, NodeGpus
from shared.kubernetes.objects.devices import ResourceSlice
from shared.kubernetes.objects.nodes import Node
from tests.unit.cluster.test_cluster_state import make_state, node, slice_, view

GPU, SHARED, DRIVER = "nvidia.com/gpu", "nvidia.com/gpu.shared", "gpu.nvidia.com"
T4 = {
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.replicas": "12",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
REGISTER = {"hami.io/node-nvidia-register": "GPU-1,10,15360,100,Tesla T4,0,true:"}


def seen(*objects: Any) -> tuple[NodeGpus, ...]:
    state = make_state(GPU, SHARED, "tencent.com/vcuda-core")
    for each in objects:
        if "driver" in each["spec"]:
            state.apply_slice(msgspec.convert(each, ResourceSlice))
        else:
            state.apply_node(msgspec.convert(each, Node))
    return view(state)["a"].gpus


def test_node_reports_gpus_and_shares() -> None:
    (gpus,) = seen(node("a", "12", metadata={"name": "a", "labels": T4}))

    assert (gpus.capacity, gpus.allocatable, gpus.allocatable_units) == (1, 1, 12)
    assert (gpus.sharing, gpus.units_per_gpu) == (GpuSharing.TIME_SLICING, 12)
    assert gpus.note.startswith("nvidia.com/gpu.sharing-strategy=time-slicing: ")


def test_a_shared_gpu_is_of_its_own_model() -> None:
    state = make_state(GPU)
    made = node("a", "12", metadata={"name": "a", "labels": T4})

    state.apply_node(msgspec.convert(made, Node))

    assert view(state)["a"].gpu_model == "Tesla-T4"


def test_node_reports_why_its_count_is_refused() -> None:
    annotations = REGISTER | {"hami.io/node-handshake": "Reported x"}

    (gpus,) = seen(node("a", "10", metadata={"name": "a", "annotations": annotations}))

    assert (gpus.is_refused, gpus.capacity, gpus.allocatable) == (True, 1, 0)
    assert gpus.note.startswith("annotation hami.io/node-nvidia-register: ")


def test_multi_claim_devices_are_not_whole_gpus() -> None:
    given = slice_("s", "a", "gpu-0", "gpu-1")
    given["spec"]["devices"][1]["allowMultipleAllocations"] = True

    (gpus,) = seen(node("a", None), given)

    assert (gpus.resource, gpus.is_refused, gpus.capacity, gpus.allocatable) == (DRIVER, True, 2, 0)
    assert gpus.note.startswith("allowMultipleAllocations ")


@pytest.mark.parametrize(
    ("kind", "count"), [("gpu", 1), ("amdgpu", 1), ("mig", 0), ("amdgpu-partition", 0), ("vfio", 0)]
)
def test_driver_devices_are_gpus_by_type(kind: str, count: int) -> None:
    given = slice_("s", "a", "device-0", "gpu-1")
    for device, type_ in zip(given["spec"]["devices"], (kind, "gpu"), strict=True):
        device["attributes"] = {"type": {"string": type_}}

    (gpus,) = seen(node("a", None), given)

    assert (gpus.capacity, gpus.is_refused) == (1 + count, False)
