"""GPUs joined to pods: kubelet's answer, names of devices, ResourceSlices."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.telemetry.readings import DeviceFacts, GpuPod
from services.telemetry.domain.pods import ClaimedDevice, PodDevices, pods_of_devices
from services.telemetry.kubernetes.resource_slices import names_in
from services.telemetry.kubernetes.wire import pods_of
from tests.support.fakes.kubelet import GOLDEN, encoded

LLAMA = GpuPod("serving", "llama-0", "ome-container")
OTHER = GpuPod("team-a", "notebook", "main")
CLAIMED = ClaimedDevice("gpu.nvidia.com", "node-1", "gpu-2")
GPUS = (
    DeviceFacts(uuid="GPU-a", index=0, name="H100", pci_bus_id="00000000:18:00.0"),
    DeviceFacts(uuid="GPU-b", index=1, name="H100", pci_bus_id="00000000:3B:00.0"),
    DeviceFacts(uuid="MIG-c", index=2, name="H100 1g.10gb", parent_uuid="GPU-b", gpu_instance_id=7),
)


def names_of(found: Mapping[str, tuple[GpuPod, ...]]) -> dict[str, tuple[GpuPod, ...]]:
    return {
        uuid: tuple(GpuPod(each.namespace, each.pod, each.container) for each in pods)
        for uuid, pods in found.items()
    }


def test_what_kubelet_itself_encodes_is_read() -> None:
    assert pods_of(GOLDEN) == (
        PodDevices(
            pod=LLAMA,
            device_ids=(
                "GPU-00000000-0000-0000-0000-000000000000",
                "GPU-00000000-0000-0000-0000-000000000001",
            ),
            resources=("nvidia.com/gpu",) * 2,
        ),
        PodDevices(pod=GpuPod("team-ä", "claimer", "ctr0"), claimed=(CLAIMED,)),
    )


def test_later_kubelet_fields_are_skipped() -> None:
    """Number 15 as a varint, 8 bytes, a text and 4 bytes: encoding.proto's wire types."""
    later = b"\x78\x80\x01" + b"\x79" + bytes(8) + b"\x7a\x02hi" + b"\x7d" + bytes(4)

    assert pods_of(later + GOLDEN + later) == pods_of(GOLDEN)


@given(st.integers(min_value=0, max_value=len(GOLDEN)))
def test_cut_answer_is_told_from_a_whole_one(length: int) -> None:
    try:
        found = pods_of(GOLDEN[:length])
    except ValueError:
        return
    assert found in {pods_of(GOLDEN)[:count] for count in range(3)}


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer_raise_nothing_else(answer: bytes) -> None:
    try:
        pods_of(answer)
    except ValueError:
        return


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("GPU-a", "GPU-a", id="a UUID"),
        pytest.param("MIG-c", "MIG-c", id="an instance's UUID"),
        pytest.param("GPU-a::3", "GPU-a", id="a share by time slices or MPS"),
        pytest.param("1", "GPU-b", id="an index"),
        pytest.param("nvidia1", "GPU-b", id="GKE"),
        pytest.param("nvidia1/vgpu0", "GPU-b", id="a share on GKE"),
        pytest.param("nvidia1/gi7", "MIG-c", id="an instance on GKE"),
        pytest.param("0000:3b:00.0", "GPU-b", id="a PCI bus id, as AMD's plugin has it"),
        pytest.param("2", None, id="an instance has no index of its own there"),
        pytest.param("mlx5_0", None, id="a network card"),
    ],
)
def test_device_is_known_by_all_plugin_names(name: str, want: str | None) -> None:
    found = pods_of_devices([PodDevices(pod=LLAMA, device_ids=(name,))], GPUS, {})

    assert names_of(found) == ({} if want is None else {want: (LLAMA,)})


def test_shared_device_has_each_pod_once() -> None:
    containers = [
        PodDevices(pod=OTHER, device_ids=("GPU-a::0", "GPU-a::1")),
        PodDevices(pod=LLAMA, device_ids=("GPU-a::2",)),
    ]

    assert names_of(pods_of_devices(containers, GPUS, {})) == {"GPU-a": (LLAMA, OTHER)}


def test_claimed_device_follows_its_slice() -> None:
    containers = [PodDevices(pod=LLAMA, claimed=(CLAIMED,))]

    for name, uuid in (("GPU-b", "GPU-b"), ("0000:18:00.0", "GPU-a")):
        found = pods_of_devices(containers, GPUS, {CLAIMED: name})
        assert names_of(found) == {uuid: (LLAMA,)}
    assert pods_of_devices(containers, GPUS, {}) == {}


@given(st.lists(st.tuples(*[st.text(min_size=1)] * 6), max_size=5))
def test_names_of_every_kind_survive_the_wire(
    names: list[tuple[str, str, str, str, str, str]],
) -> None:
    containers = [
        PodDevices(
            pod=GpuPod(a, b, c),
            device_ids=(d,),
            claimed=(ClaimedDevice(d, e, f), CLAIMED),
            resources=(e,),
        )
        for a, b, c, d, e, f in names
    ]

    assert pods_of(encoded(containers)) == tuple(containers)


def make_slice(generation: int, *devices: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": "node-1", "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.nvidia.com", "pool": pool, "devices": devices}}


def test_a_pools_newest_generation_counts() -> None:
    old = make_slice(1, {"name": "gpu-2", "attributes": {"uuid": {"string": "GPU-old"}}})
    new = make_slice(2, {"name": "gpu-2", "attributes": {"uuid": {"string": "GPU-b"}}})

    assert names_in(json.dumps({"items": [new, old]})) == {CLAIMED: "GPU-b"}


@pytest.mark.parametrize(
    ("device", "want"),
    [
        ({"attributes": {"index": {"int": 2}, "uuid": {"string": "GPU-b"}}}, "GPU-b"),
        ({"attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-b"}}}, "GPU-b"),
        ({"basic": {"attributes": {"uuid": {"string": "GPU-b"}}}}, "GPU-b"),
        (
            {"attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:3b:0.0"}}},
            "0000:3b:0.0",
        ),
        ({"attributes": {"uuid": {"version": "1.0.0"}}}, None),
        ({}, None),
    ],
)
def test_an_attribute_names_the_gpu(device: dict[str, Any], want: str | None) -> None:
    found = names_in(json.dumps({"items": [make_slice(1, {"name": "gpu-2", **device})]}))

    assert found == ({} if want is None else {CLAIMED: want})
