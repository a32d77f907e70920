"""The processes on one device."""

from struct import Struct
from typing import Final

import pynvml
from msgspec.structs import replace

from schemas.telemetry.readings import GpuProcess
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.calls import (
    Entries,
    Handle,
    find_function,
    raise_if_lost,
)

MEBIBYTE: Final = 1 << 20
_ENTRY: Final = Struct("I4xQII")  # nvmlProcessInfo_t: PID, bytes, GPU instance, compute instance
_UNKNOWN: Final = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value


class RunningProcesses:
    """Compute and graphics processes of a device; one that is both is listed once, with its larger
    memory.
    """

    def __init__(self, handle: Handle, table: ProcessTable) -> None:
        self._table = table
        self._compute, self._graphics = (
            # A driver before 510 has the second version alone.
            Entries(_ENTRY.size, find_function(f"{name}_v3", f"{name}_v2"), handle)
            for name in (
                "nvmlDeviceGetComputeRunningProcesses",
                "nvmlDeviceGetGraphicsRunningProcesses",
            )
        )

    def read(self) -> tuple[GpuProcess, ...] | None:
        """Read them in the driver's order; None if the compute processes cannot be read.

        Graphics are left out where a device has none, as MIG instances.
        """
        compute, graphics = self._compute.read(), self._graphics.read()
        if compute is None:
            return None
        used_mb: dict[int, int] = {}
        for pid, memory, _, _ in _ENTRY.iter_unpack(compute + (graphics or b"")):
            used = -1 if memory == _UNKNOWN else memory // MEBIBYTE
            used_mb[pid] = max(used, used_mb.get(pid, -1))
        processes = []
        for pid, used in used_mb.items():
            name, container_id, reservation_id, pod_uid = self._table.facts(pid)
            known_mb = None if used < 0 else used
            processes.append(GpuProcess(pid, name, known_mb, container_id, reservation_id, pod_uid))
        return tuple(processes)


class ProcessTurns:
    """How busy each process keeps a GPU, read only where processes of several pods share it.

    The driver lists those that were busy since the last call, not the others; MIG instances tell
    nothing of it.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._since_us = 0

    def add_to(
        self, processes: tuple[GpuProcess, ...] | None, busy: int | None
    ) -> tuple[GpuProcess, ...] | None:
        """The processes with their utilization; `busy` is the GPU's, None if it is unknown."""
        if processes is None or len({process.pod_uid for process in processes} - {None}) < 2:
            return processes
        try:
            entries = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._since_us)
        except pynvml.NVMLError as error:
            raise_if_lost(error.value)
            if error.value != pynvml.NVML_ERROR_NOT_FOUND or busy != 0:
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
