"""Memory of GPUs that have none of their own: they share the host's, and report no memory."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.source import Inventory, NodeReading

MEMINFO: Final = Path("/proc/meminfo")
# Boards whose CPU and GPU share one memory and whose driver tells none: DGX Spark, Jetson.
_UNIFIED: Final = re.compile(r"\b(GB10|Thor|Orin|Xavier)\b", re.IGNORECASE)
_LINE: Final = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", re.MULTILINE)


class HostMemory(Struct, frozen=True):
    """The host's memory in MiB; what is available can be had without swapping."""

    total_mb: int
    available_mb: int


def parse_meminfo(text: str) -> HostMemory | None:
    """Return the memory by `/proc/meminfo`; None if it does not tell both figures."""
    kilobytes = {name: int(value) for name, value in _LINE.findall(text)}
    if len(kilobytes) < 2:
        return None
    return HostMemory(kilobytes["MemTotal"] // 1024, kilobytes["MemAvailable"] // 1024)


def is_unified(name: str | None, memory_total_mb: int | None) -> bool:
    """Return whether a GPU shares the host's memory: of such a board, and without memory of its
    own.
    """
    return memory_total_mb is None and name is not None and _UNIFIED.search(name) is not None


def with_host_memory(
    reading: NodeReading, facts_by_uuid: Mapping[str, DeviceFacts], meminfo: Path = MEMINFO
) -> NodeReading:
    """Return the reading with the host's memory for GPUs that share it; unknown stays unknown.

    The facts are needed because not every source repeats a GPU's name in its readings.
    """
    unified = {
        gpu.uuid
        for gpu in reading.gpus
        if gpu.memory_total_mb is None
        and (facts := facts_by_uuid.get(gpu.uuid)) is not None
        and is_unified(facts.name, None)
    }
    memory = _read(meminfo) if unified else None
    if memory is None:
        return reading
    gpus = (_reading_with(gpu, memory) if gpu.uuid in unified else gpu for gpu in reading.gpus)
    return replace(reading, gpus=tuple(gpus))


def inventory_with_host_memory(inventory: Inventory, meminfo: Path = MEMINFO) -> Inventory:
    """Return the devices with the host's memory for those that share it."""
    if not any(is_unified(facts.name, facts.memory_total_mb) for facts in inventory.devices):
        return inventory
    memory = _read(meminfo)
    if memory is None:
        return inventory
    devices = (_facts_with(facts, memory) for facts in inventory.devices)
    return replace(inventory, devices=tuple(devices))


def _reading_with(gpu: GpuReading, memory: HostMemory) -> GpuReading:
    return replace(
        gpu,
        memory_total_mb=memory.total_mb,
        memory_free_mb=memory.available_mb,
        memory_used_mb=memory.total_mb - memory.available_mb,
    )


def _facts_with(facts: DeviceFacts, memory: HostMemory) -> DeviceFacts:
    if not is_unified(facts.name, facts.memory_total_mb):
        return facts
    return replace(facts, memory_total_mb=memory.total_mb)


def _read(meminfo: Path) -> HostMemory | None:
    try:
        return parse_meminfo(meminfo.read_text())
    except OSError:
        return None
