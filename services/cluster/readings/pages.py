"""Readings from what dcgm-exporter and nvidia-smi print; pure."""

import math
from collections.abc import Iterable
from typing import Final

from schemas.base import LARGEST_INTEGER
from schemas.cluster.nodes import ClusterGpuReading
from shared.gpu.dcgm_values import is_blank, memory_mb, utilization_percent
from shared.prometheus_text import samples

TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
READ: Final = frozenset(
    {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_TOTAL",
        "DCGM_FI_DEV_FB_RESERVED",
        TEMPERATURE,
    }
)
NVIDIA_SMI: Final = (
    "nvidia-smi",
    "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total,temperature.gpu",
    "--format=csv,noheader,nounits",
)
_FIELDS: Final = 6
_LONGEST_UUID: Final = 128


def from_exporter(page: str) -> tuple[ClusterGpuReading, ...]:
    """Whole GPUs by index; of instances (MIG) nothing but their board's temperature counts."""
    values: dict[tuple[int, str], dict[str, float]] = {}
    for name, labels, value in samples(page):
        uuid, index = labels.get("UUID") or labels.get("uuid") or "", _whole(labels.get("gpu"))
        if name not in READ or is_blank(value) or index is None:
            continue
        if not labels.get("GPU_I_ID") or name == TEMPERATURE:
            values.setdefault((index, uuid), {}).setdefault(name, value)
    return tuple(_reading(index, uuid, found) for (index, uuid), found in sorted(values.items()))


def from_nvidia_smi(text: str) -> tuple[ClusterGpuReading, ...]:
    """GPUs that the container sees, with its own numbers of them."""
    found = []
    for line in text.splitlines():
        fields = [each.strip() for each in line.split(",")]
        if len(fields) != _FIELDS or (index := _whole(fields[0])) is None:
            continue
        percent, used, total, temperature = (_number(each) for each in fields[2:])
        found.append(
            ClusterGpuReading(
                index=index,
                uuid=_uuid(fields[1]),
                utilization_percent=_percent(percent),
                memory_used_mb=_mebibytes(used),
                memory_total_mb=_mebibytes(total),
                temperature_c=temperature,
            )
        )
    return tuple(found)


def merged(readings: Iterable[tuple[ClusterGpuReading, ...]]) -> tuple[ClusterGpuReading, ...]:
    """Of several containers of one node: each GPU once, numbered anew, since each container numbers
    what it sees from 0.
    """
    by_uuid = {each.uuid: each for several in readings for each in several if each.uuid}
    ordered = [by_uuid[uuid] for uuid in sorted(by_uuid)]
    return tuple(
        ClusterGpuReading(
            index=index,
            uuid=each.uuid,
            utilization_percent=each.utilization_percent,
            memory_used_mb=each.memory_used_mb,
            memory_total_mb=each.memory_total_mb,
            temperature_c=each.temperature_c,
        )
        for index, each in enumerate(ordered)
    )


def _reading(index: int, uuid: str, values: dict[str, float]) -> ClusterGpuReading:
    total, used, _ = memory_mb(values)
    return ClusterGpuReading(
        index=index,
        uuid=_uuid(uuid),
        utilization_percent=_percent(utilization_percent(values, is_instance=False)),
        memory_used_mb=used,
        memory_total_mb=total,
        temperature_c=values.get(TEMPERATURE),
    )


def _uuid(text: str) -> str | None:
    return text if 0 < len(text) <= _LONGEST_UUID else None


def _whole(text: str | None) -> int | None:
    found = text is not None and text.isascii() and text.isdigit() and len(text) <= len("999")
    return int(text or "") if found else None


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:  # [N/A]
        return None
    return found if math.isfinite(found) else None


def _percent(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 100 else None


def _mebibytes(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= LARGEST_INTEGER else None
