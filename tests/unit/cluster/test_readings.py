"""What exporters and nvidia-smi print, as readings; which pod a node's readings come from."""

import msgspec

from schemas.cluster.nodes import ClusterGpuReading
from services.cluster.pod_index import PodIndex
from services.cluster.readings.pages import from_exporter, from_nvidia_smi, merge_readings
from shared.kubernetes.objects.common import Metadata
from shared.kubernetes.objects.pods import Pod
from shared.labels import INSTALLATION_LABEL

PAGE = """
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"} 98
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"} 3
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 1000
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a"} 79000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b"} 2147483632
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 41
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",GPU_I_ID="3"} 44
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",GPU_I_ID="3"} 17
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 70
other{gpu="7"} 1
"""


def test_exporter_page_gives_whole_gpus_only() -> None:
    assert from_exporter(PAGE) == (
        ClusterGpuReading(
            index=0,
            uuid="GPU-a",
            utilization_percent=3,
            memory_used_mb=1000,
            memory_total_mb=80000,
            temperature_c=41,
        ),
        ClusterGpuReading(index=1, uuid="GPU-b", utilization_percent=98, temperature_c=44),
    )
    assert from_exporter("<html>") == ()


def test_what_nvidia_smi_does_not_know_is_unknown() -> None:
    text = "0, GPU-a, 12, 500, 81559, 40\n1, GPU-b, [N/A], [Not Supported], 81559, nan\nerror\n"
    text += "2, GPU-c, 0, 0, 81559, 40\n3, GPU-d, 101, 0, 81559, 40\n"

    assert from_nvidia_smi(text) == (
        ClusterGpuReading(
            index=0,
            uuid="GPU-a",
            utilization_percent=12,
            memory_used_mb=500,
            memory_total_mb=81559,
            temperature_c=40,
        ),
        ClusterGpuReading(index=1, uuid="GPU-b", memory_total_mb=81559),
        ClusterGpuReading(
            index=2,
            uuid="GPU-c",
            utilization_percent=0,
            memory_used_mb=0,
            memory_total_mb=81559,
            temperature_c=40,
        ),
        ClusterGpuReading(
            index=3, uuid="GPU-d", memory_used_mb=0, memory_total_mb=81559, temperature_c=40
        ),
    )


def test_gpus_of_node_containers_differ_by_uuid() -> None:
    found = merge_readings(
        [from_nvidia_smi(f"0, GPU-{each}, 1, 2, 3, 4") for each in ("b", "a", "b")]
    )

    assert [(each.index, each.uuid) for each in found] == [(0, "GPU-a"), (1, "GPU-b")]


def pod(name: str, labels: dict[str, str], phase: str = "Running") -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {
                "nodeName": "a",
                "containers": [
                    {"name": "main", "ports": [{"name": "metrics", "containerPort": 9500}]}
                ],
            },
            "status": {"phase": phase, "podIP": "10.0.0.1"},
        },
        Pod,
    )


def test_exporters_and_pods_are_known_by_labels() -> None:
    index = PodIndex([("app", "dcgm-exporter")], 9400, "us")
    agent = {"app.kubernetes.io/name": "telemetry", "app.kubernetes.io/part-of": "gpusteward"}

    index.replace(
        [
            pod("exporter", {"app": "dcgm-exporter"}),
            pod("ours", {INSTALLATION_LABEL: "us"}),
            pod("theirs", {INSTALLATION_LABEL: "them"}),
            pod("agent", agent),
            pod("pending", {INSTALLATION_LABEL: "us"}, "Pending"),
        ]
    )

    assert (index.exporters["a"].ip, index.exporters["a"].port) == ("10.0.0.1", 9500)
    assert [each.name for each in index.own["a"].values()] == ["ours"]
    assert index.agents == {"a": ("ns", "agent")}

    for name in ("exporter", "ours", "agent"):
        index.remove(Metadata(name=name, namespace="ns"))
    assert (index.exporters, index.own, index.agents) == ({}, {}, {})
