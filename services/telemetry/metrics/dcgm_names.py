"""A reading under the names, units and types that dcgm-exporter gives it.

The names and help texts are those of its `etc/default-counters.csv`, so that dashboards made for it
show these readings. What DCGM counts and we do not read is left out, as is its gauge of the last
XID: XIDs are counted.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple
from uuid import UUID

from schemas.gpus.kinds import GpuKind
from schemas.telemetry.readings import DeviceFacts, GpuReading, Source
from services.telemetry.domain.holdings import Tenant


class Field(NamedTuple):
    """One metric; `read` gives None for what is unknown."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[GpuReading], float | None]


FIELDS: Final = (
    Field(
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
        lambda gpu: gpu.sm_clock_mhz,
    ),
    Field(
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
        lambda gpu: gpu.memory_clock_mhz,
    ),
    Field(
        "DCGM_FI_DEV_GPU_TEMP",
        "gauge",
        "GPU temperature (in C).",
        lambda gpu: gpu.temperature_c,
    ),
    Field("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda gpu: gpu.power_draw_w),
    Field(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
        "gauge",
        "Current power limit (in W).",
        lambda gpu: gpu.power_limit_w,
    ),
    Field(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        lambda gpu: gpu.energy_mj,
    ),
    Field(
        "DCGM_FI_DEV_GPU_UTIL",
        "gauge",
        "GPU utilization (in %).",
        lambda gpu: gpu.utilization_percent,
    ),
    Field(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
        lambda gpu: gpu.memory_utilization_percent,
    ),
    Field(
        "DCGM_FI_DEV_ENC_UTIL",
        "gauge",
        "Encoder utilization (in %).",
        lambda gpu: gpu.encoder_percent,
    ),
    Field(
        "DCGM_FI_DEV_DEC_UTIL",
        "gauge",
        "Decoder utilization (in %).",
        lambda gpu: gpu.decoder_percent,
    ),
    Field(
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        lambda gpu: gpu.memory_free_mb,
    ),
    Field(
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
        lambda gpu: gpu.memory_used_mb,
    ),
    Field(
        "DCGM_FI_DEV_FB_TOTAL",
        "gauge",
        "Framebuffer memory total (in MiB).",
        lambda gpu: gpu.memory_total_mb,
    ),
    Field("DCGM_FI_DEV_FAN_SPEED", "gauge", "Fan speed (in %).", lambda gpu: gpu.fan_percent),
    Field(
        "DCGM_FI_DEV_PSTATE",
        "gauge",
        "Performance state, 0 is the fastest.",
        lambda gpu: gpu.performance_state,
    ),
    Field(
        "DCGM_FI_DEV_PCIE_LINK_GEN",
        "gauge",
        "PCIe generation in use.",
        lambda gpu: gpu.pcie_generation,
    ),
    Field("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes in use.", lambda gpu: gpu.pcie_width),
    Field(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Total number of single-bit volatile ECC errors.",
        lambda gpu: gpu.ecc_corrected,
    ),
    Field(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Total number of double-bit volatile ECC errors.",
        lambda gpu: gpu.ecc_uncorrected,
    ),
    Field(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors",
        lambda gpu: gpu.remapped_rows_uncorrected,
    ),
    Field(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors",
        lambda gpu: gpu.remapped_rows_corrected,
    ),
    Field(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed",
        lambda gpu: gpu.remap_failed,
    ),
)


class Node(NamedTuple):
    """What the labels of every device of a node have in common."""

    hostname: str
    driver_version: str | None
    source: Source


def labels_of(
    gpu: GpuReading,
    devices: Mapping[str, DeviceFacts],
    node: Node,
    holder: tuple[UUID, Tenant] | None,
) -> dict[str, str]:
    """A device's labels: dcgm-exporter's, then ours, empty where no reservation holds it.

    An instance of a partitioned GPU goes by its GPU's number and UUID, as there. The pod is named
    where it alone has the device; then `namespace` is the pod's. What several share is not split
    here. `kind` is how the device is handed out, a value of `GpuKind`.
    """
    facts = devices.get(gpu.uuid)
    parent = facts
    if facts is not None and facts.parent_uuid is not None:
        parent = devices.get(facts.parent_uuid, facts)
    index = gpu.index if parent is None else parent.index
    vendor = "amd" if node.source is Source.AMD else "nvidia"
    labels = {
        "gpu": str(index),
        "UUID": gpu.uuid if parent is None else parent.uuid,
        "pci_bus_id": (parent.pci_bus_id if parent else None) or "",
        "device": f"{vendor}{index}",
        "modelName": (parent.name if parent else gpu.name) or "",
        "Hostname": node.hostname,
        "DCGM_FI_DRIVER_VERSION": node.driver_version or "",
        "reservation": "",
        "experiment": "",
        "namespace": "",
        "kind": _kind_of(gpu, facts),
    }
    if facts is not None and facts.parent_uuid is not None:
        labels["GPU_I_PROFILE"] = facts.mig_profile or ""
        labels["GPU_I_ID"] = "" if facts.gpu_instance_id is None else str(facts.gpu_instance_id)
    if holder is not None:
        reservation_id, tenant = holder
        labels |= {
            "reservation": str(reservation_id),
            "experiment": tenant.experiment,
            "namespace": tenant.namespace,
        }
    if gpu.pods is not None and len(gpu.pods) == 1:
        [pod] = gpu.pods
        labels |= {"namespace": pod.namespace, "pod": pod.pod, "container": pod.container}
    if node.source is Source.SIMULATED:
        labels["simulated"] = "true"
    return labels


def _kind_of(gpu: GpuReading, facts: DeviceFacts | None) -> str:
    kinds = {pod.kind for pod in gpu.pods or () if pod.kind}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds:
        return GpuKind.SHARED.value
    is_instance = facts is not None and facts.parent_uuid is not None
    return (GpuKind.MIG if is_instance else GpuKind.PGPU).value
