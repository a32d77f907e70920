"""What a dashboard made for dcgm-exporter finds."""

from typing import Any
from uuid import UUID

from schemas.telemetry.readings import DeviceFacts, GpuPod, GpuReading, PodUse, Source
from services.telemetry.domain.holdings import Tenant
from services.telemetry.metrics.dcgm_names import FIELDS, Node, labels_of
from services.telemetry.metrics.pod_families import pod_families

NODE = Node("host-a", "550.54", Source.NVML)
GPU = DeviceFacts(
    uuid="GPU-0", index=3, name="NVIDIA H100 80GB HBM3", pci_bus_id="00000000:07:00.0"
)
PART = DeviceFacts(
    uuid="MIG-1",
    index=8,
    name="NVIDIA H100 MIG 1g.10gb",
    parent_uuid="GPU-0",
    mig_profile="1g.10gb",
    gpu_instance_id=7,
)
DEVICES = {"GPU-0": GPU, "MIG-1": PART}


def labels(uuid: str, pods: tuple[GpuPod, ...] | None = None, **overrides: Any) -> dict[str, str]:
    values: dict[str, Any] = {"node": NODE, "holder": None, **overrides}
    return labels_of(GpuReading(uuid=uuid, index=3, pods=pods), DEVICES, **values)


def test_labels_are_those_of_dcgm_exporter_and_ours() -> None:
    holder = (UUID(int=5), Tenant.of("team-a", "experiment/e1"))

    assert labels("GPU-0", holder=holder) == {
        "gpu": "3",
        "UUID": "GPU-0",
        "pci_bus_id": "00000000:07:00.0",
        "device": "nvidia3",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "host-a",
        "DCGM_FI_DRIVER_VERSION": "550.54",
        "reservation": str(UUID(int=5)),
        "experiment": "e1",
        "namespace": "team-a",
        "kind": "pgpu",
    }


def test_instance_names_gpu_and_profile() -> None:
    found = labels("MIG-1")

    assert (found["gpu"], found["UUID"]) == ("3", "GPU-0")
    assert (found["GPU_I_PROFILE"], found["GPU_I_ID"]) == ("1g.10gb", "7")
    assert found["reservation"] == ""


def test_only_pod_is_named_like_dcgm_exporter() -> None:
    llama, other = GpuPod("serving", "llama-0", "main"), GpuPod("team-a", "notebook", "main")
    named = {"namespace": "serving", "pod": "llama-0", "container": "main"}

    assert labels("GPU-0", (llama,)) == {**labels("GPU-0"), **named}
    assert labels("GPU-0", (llama, other)) == labels("GPU-0", ()) == labels("GPU-0")


def test_pods_have_metrics_with_their_names() -> None:
    told = GpuPod("serving", "llama-0", "main", kind="mps", percent=25, uid="a", owner="Job/x")
    sidecar = GpuPod("serving", "llama-0", "sidecar", kind="mps", uid="a", owner="Job/x")
    untold = GpuPod("team-a", "notebook", "main", kind="mps", uid="b")
    gpu = GpuReading(
        uuid="GPU-0",
        index=3,
        utilization_percent=90.0,
        memory_total_mb=8_000,
        memory_used_mb=6_000,
        pods=(told, sidecar, untold),
        pod_uses=(PodUse("a", 1_000, 20.0),),
    )

    found = {
        (metric.name.removeprefix("gpusteward_pod_gpu_"), sample.labels["pod"]): (
            sample.labels["reading"],
            sample.value,
        )
        for metric in pod_families([(gpu, labels("GPU-0", gpu.pods))])
        for sample in metric.samples
    }

    assert labels("GPU-0", gpu.pods)["kind"] == "mps"
    assert found == {
        ("utilization_percent", "llama-0"): ("own", 20.0),
        ("utilization_percent", "notebook"): ("gpu", 90.0),
        ("memory_used_bytes", "llama-0"): ("own", 1_000 * 2**20),
        ("memory_used_bytes", "notebook"): ("gpu", 6_000 * 2**20),
        ("memory_given_bytes", "llama-0"): ("own", 2_000 * 2**20),
    }


def test_a_made_up_gpu_says_so_wherever_it_shows() -> None:
    assert labels("GPU-0", node=NODE._replace(source=Source.SIMULATED))["simulated"] == "true"
    assert "simulated" not in labels("GPU-0")


def test_unknown_has_no_value_zero_has_one() -> None:
    nothing = GpuReading(uuid="GPU-0", index=0)
    idle = GpuReading(uuid="GPU-0", index=0, utilization_percent=0.0, remap_failed=False)

    assert {field.read(nothing) for field in FIELDS} == {None}
    known = {field.name: field.read(idle) for field in FIELDS if field.read(idle) is not None}
    assert known == {"DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_ROW_REMAP_FAILURE": False}
