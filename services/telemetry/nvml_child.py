"""The process that talks to NVML, so that a driver that hangs takes nothing but this along.

Started by `services.telemetry.nvml`; reads requests from stdin, answers on stdout.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final, TypeVar

import pynvml

from schemas.telemetry import DeviceFacts, GpuProcess, GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.ports import Inventory, Reading
from services.telemetry.probe_protocol import (
    LENGTH,
    Absent,
    Ask,
    Done,
    Failed,
    InventoryTaken,
    ProbeReply,
    ReadingTaken,
    encode_reply,
)
from services.telemetry.processes import name_of, reservation_of
from shared.lifecycle import die_with_parent

MEBIBYTE: Final = 1 << 20
_LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_BROKEN: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)

T = TypeVar("T")


class GpuLostError(Exception):
    """This GPU does not answer; the others may."""


class Nvml:
    """The library, initialised, with a handle per device that is kept open."""

    def __init__(self) -> None:
        self._handles: dict[str, tuple[int, Any]] = {}
        self._facts: dict[str, DeviceFacts] = {}
        self._someone_is_missing = False

    def open(self) -> ProbeReply:
        """Initialise, once."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound as error:
            return Absent(str(error))
        if pynvml.nvmlDeviceGetCount() == 0:
            return Absent("NVML reports no devices")
        return Done()

    def inventory(self) -> Inventory:
        """Enumerate anew. NVML notices a GPU that came back only when it is initialised again."""
        if self._someone_is_missing:
            pynvml.nvmlShutdown()
            pynvml.nvmlInit()
        self._handles.clear()
        count = pynvml.nvmlDeviceGetCount()
        for index in range(count):
            self._take_in(index)
        if count and not self._facts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_NOT_FOUND)
        devices = [self._facts[uuid] for uuid in self._handles if uuid in self._facts]
        return Inventory(
            devices=tuple(sorted(devices, key=lambda facts: facts.index)),
            driver_version=_ask(pynvml.nvmlSystemGetDriverVersion),
            cuda_driver_version=_cuda_version(),
        )

    def read(self) -> Reading:
        """Every device that answers."""
        gpus: list[GpuReading] = []
        lost: dict[str, str] = {}
        for uuid, (index, handle) in self._handles.items():
            try:
                gpus.append(_read(uuid, index, handle, self._facts[uuid]))
            except GpuLostError as error:
                lost[uuid] = str(error)
        self._someone_is_missing = bool(lost) or len(self._handles) < len(self._facts)
        return Reading(gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)), lost=lost)

    def _take_in(self, index: int) -> None:
        """Keep a handle of the device at `index`, if it says at least who it is."""
        try:
            handle = _demand(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = _demand(pynvml.nvmlDeviceGetUUID, handle)
            self._facts[uuid] = _facts(uuid, index, handle)
        except (GpuLostError, pynvml.NVMLError):
            return
        self._handles[uuid] = (index, handle)


def _demand(function: Callable[..., T], *arguments: Any) -> T:
    """Call NVML. Raises GpuLostError, and NVMLError for every other failure."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise GpuLostError(str(error)) from error
        raise


def _ask(function: Callable[..., T], *arguments: Any) -> T | None:
    """Call NVML; None for what a device cannot say.

    Raises GpuLostError, and NVMLError when NVML as a whole does not work.
    """
    try:
        return _demand(function, *arguments)
    except pynvml.NVMLError as error:
        if error.value in _BROKEN:
            raise
    except (UnicodeDecodeError, ValueError):
        pass
    return None


def _facts(uuid: str, index: int, handle: Any) -> DeviceFacts:
    memory = _memory(handle)
    capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    pci = _ask(pynvml.nvmlDeviceGetPciInfo, handle)
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=_ask(pynvml.nvmlDeviceGetName, handle) or "unknown",
        memory_total_mb=None if memory is None else memory.total // MEBIBYTE,
        pci_bus_id=None if pci is None else pci.busId,
        serial=_ask(pynvml.nvmlDeviceGetSerial, handle),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        numa_node=_numa_node(handle, None if pci is None else pci.busId),
        mig_enabled=None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
    )


def _read(uuid: str, index: int, handle: Any, facts: DeviceFacts) -> GpuReading:
    utilization = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _memory(handle)
    draw_mw = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
    limit_mw = _ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    celsius = _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    mask = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return GpuReading(
        uuid=uuid,
        index=index,
        utilization_percent=None if utilization is None else float(utilization.gpu),
        memory_total_mb=None if memory is None else memory.total // MEBIBYTE,
        memory_used_mb=None if memory is None else memory.used // MEBIBYTE,
        memory_free_mb=None if memory is None else memory.free // MEBIBYTE,
        temperature_c=None if celsius is None else float(celsius),
        power_draw_w=None if draw_mw is None else draw_mw / 1000,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        energy_mj=_ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        sm_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        throttle_reasons=None if mask is None else throttle_reasons(mask),
        ecc_corrected=_ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ecc_uncorrected=_ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        processes=_processes(handle),
        name=facts.name,
    )


def _memory(handle: Any) -> Any:
    """As nvidia-smi counts: without what the driver reserves. Before 510 that is counted in."""
    found = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    return _ask(pynvml.nvmlDeviceGetMemoryInfo, handle) if found is None else found


def _ecc(handle: Any, kind: int) -> int | None:
    return _ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)


def _processes(handle: Any) -> tuple[GpuProcess, ...] | None:
    found = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if found is None:
        return None
    return tuple(
        GpuProcess(
            pid=process.pid,
            name=name_of(process.pid),
            memory_used_mb=(
                None if process.usedGpuMemory is None else process.usedGpuMemory // MEBIBYTE
            ),
            reservation_id=reservation_of(process.pid),
        )
        for process in found
    )


def _numa_node(handle: Any, pci_bus_id: str | None) -> int | None:
    """NVML's word where it has one, else the kernel's, whose -1 means that it does not know."""
    node = _ask(pynvml.nvmlDeviceGetNumaNodeId, handle)
    if node is None and pci_bus_id is not None:
        # NVML writes eight digits of PCI domain, sysfs four.
        path = f"/sys/bus/pci/devices/{pci_bus_id.lower()[-12:]}/numa_node"
        try:
            with open(path) as file:  # noqa: PTH123  # pathlib is not worth its memory here
                node = int(file.read())
        except (OSError, ValueError):
            return None
    return node if node is not None and node >= 0 else None


def _cuda_version() -> str | None:
    number = _ask(pynvml.nvmlSystemGetCudaDriverVersion)
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def _answer(nvml: Nvml, request: bytes) -> ProbeReply:
    try:
        match Ask(request.decode()):
            case Ask.OPEN:
                return nvml.open()
            case Ask.INVENTORY:
                return InventoryTaken(nvml.inventory())
            case Ask.READ:
                return ReadingTaken(nvml.read())
    except pynvml.NVMLError as error:
        return Failed(str(error))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until the other side closes."""
    nvml = Nvml()
    while header := requests.read(LENGTH.size):
        (length,) = LENGTH.unpack(header)
        replies.write(encode_reply(_answer(nvml, requests.read(length))))
        replies.flush()


def main() -> None:
    """Serve on stdin and stdout; what the library prints goes to stderr instead."""
    die_with_parent(parent_pid=int(sys.argv[1]))
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
