"""How much of a GPU a pod was given, whose it is, and what it uses of it."""

import json
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from schemas.gpus.kinds import GpuKind
from schemas.telemetry.readings import DeviceFacts, GpuPod, GpuProcess, GpuReading, PodUse
from services.telemetry.domain.pods import (
    NodeFacts,
    PodDevices,
    PodFacts,
    pod_uses,
    pods_of_devices,
    share_counts,
    with_uses,
)
from services.telemetry.kubernetes.pod_facts import facts_in
from services.telemetry.kubernetes.wire import allocatable_of
from tests.support.fakes.kubelet import encoded_ids

GPUS = (
    DeviceFacts(uuid="GPU-a", index=0, name="H100"),
    DeviceFacts(uuid="GPU-b", index=1, name="H100"),
    DeviceFacts(uuid="MIG-c", index=2, name="H100 1g.10gb", parent_uuid="GPU-b", gpu_instance_id=7),
)
LLAMA, OTHER = GpuPod("serving", "llama-0", "main"), GpuPod("team-a", "notebook", "main")
GPU, CORES = "nvidia.com/gpu", "tencent.com/vcuda-core"
MEMORY = "tencent.com/vcuda-memory"
A, B = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def given_as(pods: tuple[GpuPod, ...]) -> list[tuple[str, str, int | None]]:
    return [(pod.pod, pod.kind, pod.percent) for pod in pods]


def test_share_is_its_part_of_the_whole() -> None:
    ids = [(GPU, f"GPU-a::{number}") for number in range(4)] + [(GPU, "GPU-b")]
    containers = [
        PodDevices(pod=LLAMA, device_ids=("GPU-a::0", "GPU-a::2"), resources=(GPU, GPU)),
        PodDevices(pod=OTHER, device_ids=("GPU-a::1", "GPU-b"), resources=(GPU, GPU)),
    ]
    node = NodeFacts(share_counts=share_counts(allocatable_of(encoded_ids(ids))))

    found = pods_of_devices(containers, GPUS, {}, node)

    assert given_as(found["GPU-a"]) == [
        ("llama-0", "time_slice", 50),
        ("notebook", "time_slice", 25),
    ]
    assert given_as(found["GPU-b"]) == [("notebook", "pgpu", 100)]


def test_share_of_unknown_count_has_unknown_size() -> None:
    containers = [PodDevices(pod=LLAMA, device_ids=("GPU-a::0",), resources=(GPU,))]

    found = pods_of_devices(containers, GPUS, {}, NodeFacts(share_kind=GpuKind.MPS))

    assert given_as(found["GPU-a"]) == [("llama-0", "mps", None)]


def test_an_instance_is_one_whoever_counts_it() -> None:
    given = PodDevices(pod=LLAMA, device_ids=("MIG-c",), resources=("nvidia.com/mig-1g.10gb",))

    assert given_as(pods_of_devices([given], GPUS, {})["MIG-c"]) == [("llama-0", "mig", 100)]


@pytest.mark.parametrize(
    ("cores", "indices", "want"),
    [
        pytest.param(30, (1,), {"GPU-b": [("llama-0", "vgpu", 30)]}, id="a part"),
        pytest.param(
            200,
            (0, 1),
            {"GPU-a": [("llama-0", "pgpu", 100)], "GPU-b": [("llama-0", "pgpu", 100)]},
            id="whole GPUs",
        ),
        pytest.param(30, (), {}, id="not noted"),
    ],
)
def test_gpu_manager_cores_are_of_noted_gpu(
    cores: int, indices: tuple[int, ...], want: dict[str, list[tuple[str, str, int]]]
) -> None:
    ids = tuple(f"{CORES}-{number}" for number in range(cores))
    noted = {0: indices} if indices else {}
    node = NodeFacts(pods={("serving", "llama-0"): PodFacts(uid=A, gpu_indices=noted)})

    found = pods_of_devices(
        [PodDevices(pod=LLAMA, device_ids=ids, resources=(CORES,) * cores)], GPUS, {}, node
    )

    assert {uuid: given_as(pods) for uuid, pods in found.items()} == want


def test_gpu_manager_memory_unit_is_256_mib() -> None:
    node = NodeFacts(pods={("serving", "llama-0"): PodFacts(uid=A, gpu_indices={0: (1,)})})
    container = PodDevices(
        pod=LLAMA, device_ids=("c-0", "m-0", "m-1"), resources=(CORES, MEMORY, MEMORY)
    )

    [pod] = pods_of_devices([container], GPUS, {}, node)["GPU-b"]

    assert (pod.percent, pod.memory_mb) == (1, 512)


def make_pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "serving", "uid": A, **metadata}}


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param(
            {
                "labels": {"pod-template-hash": "6d4cf56db6"},
                "ownerReferences": [
                    {"kind": "ReplicaSet", "name": "llama-6d4cf56db6", "controller": True}
                ],
            },
            PodFacts(uid=A, owner="Deployment/llama"),
            id="a Deployment's",
        ),
        pytest.param(
            {"ownerReferences": [{"kind": "Job", "name": "train", "controller": True}]},
            PodFacts(uid=A, owner="Job/train"),
            id="a Job's",
        ),
        pytest.param(
            {"ownerReferences": [{"kind": "Node", "name": "n"}]},
            PodFacts(uid=A),
            id="an owner that controls nothing",
        ),
        pytest.param(
            {"labels": {"gpusteward.reservation": B}},
            PodFacts(uid=A, reservation_id=B),
            id="a reservation's",
        ),
        pytest.param(
            {"annotations": {"tencent.com/predicate-gpu-idx-0": "0,1"}},
            PodFacts(uid=A, gpu_indices={0: (0, 1)}),
            id="GPU-Manager's",
        ),
        pytest.param(
            {"annotations": {"tencent.com/predicate-gpu-idx-0": f" 1 ,\u00b2,{'1' * 5000},-1,,x"}},
            PodFacts(uid=A, gpu_indices={0: (1,)}),
            id="anybody's",
        ),
    ],
)
def test_metadata_tell_whose_a_pod_is(metadata: dict[str, Any], want: PodFacts) -> None:
    listed = json.dumps({"kind": "PartialObjectMetadataList", "items": [make_pod("x", **metadata)]})

    assert facts_in(listed) == {("serving", "x"): want}


def test_pods_use_what_their_processes_do() -> None:
    processes = (
        GpuProcess(1, "a", 1_000, pod_uid=A, utilization_percent=30.0),
        GpuProcess(2, "a", 500, pod_uid=A, utilization_percent=20.0),
        GpuProcess(3, "nvidia-cuda-mps-server", 30),
    )

    assert pod_uses((A, B), processes) == (PodUse(A, 1_500, 50.0), PodUse(B, 0, 0.0))


def test_unknown_pod_makes_all_use_unknown() -> None:
    processes = (GpuProcess(1, "a", None, pod_uid=A), GpuProcess(2, None, 30))

    assert pod_uses((A, B), processes) == (PodUse(A), PodUse(B))


def test_a_pod_alone_on_a_gpu_uses_what_is_read() -> None:
    pods = (GpuPod("serving", "llama-0", "main", uid=A),)
    alone = GpuReading(uuid="GPU-a", index=0, processes=(), pods=pods)
    nameless = GpuReading(uuid="GPU-a", index=0, processes=(), pods=(*pods, OTHER))

    assert with_uses(alone).pod_uses is None
    assert with_uses(nameless).pod_uses is None


@drawn(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 9_000)), max_size=6))
def test_uses_of_pods_add_up_to_their_processes(used: list[tuple[str, int]]) -> None:
    processes = [
        GpuProcess(pid, "x", memory, pod_uid=uid, utilization_percent=1.0)
        for pid, (uid, memory) in enumerate(used)
    ]

    found = pod_uses((A, B), processes)

    assert sum(use.memory_used_mb or 0 for use in found) == sum(memory for _, memory in used)
    assert sum(use.utilization_percent or 0 for use in found) == len(used)
