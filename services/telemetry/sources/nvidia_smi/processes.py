"""Parses nvidia-smi's list of processes."""

from collections.abc import Mapping
from typing import Final

from schemas.telemetry.readings import GpuProcess
from services.telemetry.domain.tool_values import count, text
from services.telemetry.sources.nvidia_smi.csv import is_warning

# The name comes last: it is a path, and a path may have a comma in it.
PROCESS_FIELDS: Final = ("gpu_uuid", "pid", "used_memory", "process_name")
_NONE: Final = "No running processes found"


def parse_processes(output: str) -> Mapping[str, tuple[GpuProcess, ...]] | None:
    """Processes by GPU; a GPU without one is absent. None if a line is something else.

    A list that may be short is worse than none: a GPU would look unused.
    """
    by_device: dict[str, list[GpuProcess]] = {}
    for line in output.splitlines():
        if not line.strip() or line.strip() == _NONE or is_warning(line):
            continue
        parts = [part.strip() for part in line.split(",", len(PROCESS_FIELDS) - 1)]
        if len(parts) != len(PROCESS_FIELDS):
            return None
        uuid, pid, memory, path = parts
        number = count(pid)
        if number is None or text(uuid) is None:
            return None
        name = text(path)
        process = GpuProcess(
            pid=number,
            name=name.rpartition("/")[2] if name else None,
            memory_used_mb=count(memory),
        )
        by_device.setdefault(uuid, []).append(process)
    return {uuid: tuple(processes) for uuid, processes in by_device.items()}
