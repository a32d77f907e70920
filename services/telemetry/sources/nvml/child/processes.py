"""The processes on one device."""

from ctypes import byref, c_uint, create_string_buffer
from struct import Struct
from typing import Any, Final

import pynvml
from msgspec.structs import replace

from schemas.telemetry.readings import GpuProcess
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.calls import (
    Handle,
    library_function,
    raise_if_lost,
    try_call,
)

MEBIBYTE: Final = 1 << 20
_ENTRY: Final = Struct("I4xQII")  # nvmlProcessInfo_t: PID, bytes, GPU instance, compute instance
_UNKNOWN: Final = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
_FIRST_ROOM: Final = 16


def running_processes(handle: Handle, table: ProcessTable) -> tuple[GpuProcess, ...] | None:
    """Compute and graphics processes; one that is both is listed once, with its larger memory.

    In the driver's order; None if the compute processes cannot be read. Graphics are left out where
    a device has none, as MIG instances.
    """
    compute, graphics = _read_entries("Compute", handle), _read_entries("Graphics", handle)
    if compute is None:
        return None
    used_mb: dict[int, int | None] = {}
    for pid, memory, _, _ in _ENTRY.iter_unpack(compute + (graphics or b"")):
        used = None if memory == _UNKNOWN else memory // MEBIBYTE
        used_before = used_mb.get(pid)
        is_larger = used_before is None or (used is not None and used > used_before)
        used_mb[pid] = used if is_larger else used_before
    return tuple(_process(table, pid, used) for pid, used in used_mb.items())


class ProcessTurns:
    """How busy each process keeps a GPU, read only where processes of several pods share it.

    The driver lists those that were busy since the last call, not the others; MIG instances tell
    nothing of it.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._since_us = 0

    def add_to(
        self, processes: tuple[GpuProcess, ...] | None, busy: Any
    ) -> tuple[GpuProcess, ...] | None:
        """The processes with their utilization; `busy` is the GPU's, None if it is unknown."""
        if processes is None or len({process.pod_uid for process in processes} - {None}) < 2:
            return processes
        try:
            entries = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._since_us)
        except pynvml.NVMLError as error:
            raise_if_lost(error)
            is_rest = error.value == pynvml.NVML_ERROR_NOT_FOUND and busy is not None
            if not is_rest or busy.gpu:
                return processes
            entries = []
        self._since_us = max((sample.timeStamp for sample in entries), default=self._since_us)
        # The newest of each; drivers have told more than there is.
        percents = {
            sample.pid: sample.smUtil for sample in sorted(entries, key=lambda e: e.timeStamp)
        }
        return tuple(
            replace(process, utilization_percent=float(percent))
            if (percent := percents.get(process.pid, 0)) <= 100
            else process
            for process in processes
        )


def _read_entries(kind: str, handle: Handle) -> bytes | None:
    """The driver's entries, by the third version of the call, before driver 510 by the second."""
    for version in (3, 2):
        entries = try_call(_entries, f"nvmlDeviceGet{kind}RunningProcesses_v{version}", handle)
        if entries is not None:
            return entries
    return None


def _entries(name: str, handle: Handle) -> bytes:
    """nvidia-ml-py's function, without an object per process: that costs four times the call."""
    call = library_function(name)
    count = c_uint(_FIRST_ROOM)
    while True:
        entries = create_string_buffer(count.value * _ENTRY.size)
        status = call(handle, byref(count), entries)
        if status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            break
        count.value *= 2  # more may start before the next call
    if status:
        raise pynvml.NVMLError(status)
    return entries.raw[: count.value * _ENTRY.size]


def _process(table: ProcessTable, pid: int, used_mb: int | None) -> GpuProcess:
    facts = table.facts(pid)
    return GpuProcess(
        pid, facts.name, used_mb, facts.container_id, facts.reservation_id, facts.pod_uid
    )
