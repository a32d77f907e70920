"""One reading of one device, over a handle and C cells that are kept for the next."""

from ctypes import byref, c_uint, c_ulonglong
from functools import lru_cache
from typing import Final

import pynvml

from schemas.telemetry import GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.nvml_library import Handle, function, numbers, refused
from services.telemetry.nvml_processes import RunningProcesses
from services.telemetry.nvml_samples import DriverSamples
from services.telemetry.processes import ProcessTable

MEBIBYTE: Final = 1 << 20

_reasons = lru_cache(maxsize=256)(throttle_reasons)


_SINGLE: Final = (
    (("nvmlDeviceGetTemperature",), (pynvml.NVML_TEMPERATURE_GPU,)),
    (("nvmlDeviceGetPowerUsage",), ()),
    (("nvmlDeviceGetEnforcedPowerLimit",), ()),
    (("nvmlDeviceGetTotalEnergyConsumption",), ()),
    (("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_SM,)),
    (("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_MEM,)),
    (
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
        (),
    ),
    (
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
    (
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
    (("nvmlDeviceGetPerformanceState",), ()),
    (("nvmlDeviceGetFanSpeed",), ()),
    (("nvmlDeviceGetCurrPcieLinkGeneration",), ()),
    (("nvmlDeviceGetCurrPcieLinkWidth",), ()),
    (("nvmlDeviceGetRetiredPagesPendingStatus",), ()),
)


class DeviceReader:
    """Everything that a device tells at every tick.

    The PCIe throughput is left out: the driver measures it for 20 ms per call.
    """

    def __init__(
        self, uuid: str, index: int, name: str, handle: Handle, table: ProcessTable
    ) -> None:
        self._uuid, self._index, self._name = uuid, index, name
        self._memory = _Memory(handle)
        self._utilization = _Utilization(handle)
        self._links = _Links(handle)
        self._retired = _RetiredPages(handle)
        self._processes = RunningProcesses(handle, table)
        self._samples = DriverSamples(handle)
        self._single = _SingleNumbers(handle)
        self._encoder = numbers(function("nvmlDeviceGetEncoderUtilization"), handle, 2)
        self._decoder = numbers(function("nvmlDeviceGetDecoderUtilization"), handle, 2)
        self._rows = numbers(function("nvmlDeviceGetRemappedRows"), handle, 4)

    def read(self) -> GpuReading:
        """Raises GpuLostError, and NVMLError when NVML as a whole does not work."""
        total, used, free = self._memory.mebibytes()
        busy, memory_busy = self._utilization.percent()
        one = self._single.now()
        celsius, draw_mw, limit_mw, energy_mj, sm_mhz, memory_mhz, mask = one[:7]
        corrected, uncorrected, state, fan, generation, width, pending = one[7:]
        encoder, decoder, rows = self._encoder(), self._decoder(), self._rows()
        return GpuReading(
            uuid=self._uuid,
            index=self._index,
            utilization_percent=busy,
            memory_total_mb=total,
            memory_used_mb=used,
            memory_free_mb=free,
            temperature_c=None if celsius is None else float(celsius),
            power_draw_w=None if draw_mw is None else draw_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            energy_mj=energy_mj,
            sm_clock_mhz=sm_mhz,
            memory_clock_mhz=memory_mhz,
            throttle_reasons=None if mask is None else _reasons(mask),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            processes=self._processes.now(),
            name=self._name,
            # NVML_PSTATE_UNKNOWN is 32; the states that there are end with P15.
            performance_state=state if state is not None and state < 16 else None,
            fan_percent=None if fan is None else float(fan),
            memory_utilization_percent=memory_busy,
            encoder_percent=None if encoder is None else float(encoder[0]),
            decoder_percent=None if decoder is None else float(decoder[0]),
            pcie_generation=generation,
            pcie_width=width,
            retired_pages=self._retired.count(),
            retired_pages_pending=None if pending is None else pending == 1,
            remapped_rows_corrected=None if rows is None else rows[0],
            remapped_rows_uncorrected=None if rows is None else rows[1],
            remap_pending=None if rows is None else rows[2] == 1,
            remap_failed=None if rows is None else rows[3] == 1,
            nvlinks_up=self._links.up(),
            buffered=self._samples.since_last(),
        )


class _SingleNumbers:
    """What is asked for by one call and answered by one number, in one loop over all of it."""

    def __init__(self, handle: Handle) -> None:
        self._asks = []
        for names, arguments in _SINGLE:
            # Some are of 32 bits, and leave the upper half alone; every host of NVIDIA's counts
            # from the lower end.
            cell = c_ulonglong()
            self._asks.append((function(*names), (handle, *arguments, byref(cell)), cell))

    def now(self) -> list[int | None]:
        """In the order of the table."""
        found: list[int | None] = []
        for call, arguments, cell in self._asks:
            status = call(*arguments)
            if status:
                refused(status)
                found.append(None)
            else:
                found.append(cell.value)
        return found


class _Memory:
    """As nvidia-smi counts: without what the driver reserves. Before 510 that is counted in.

    The cells are laid out as nvmlMemory_v2_t and nvmlMemory_t, whose fields cost more to get at.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._now, self._old = (c_ulonglong * 5)(pynvml.nvmlMemory_v2), (c_ulonglong * 3)()
        self._now_at, self._old_at = byref(self._now), byref(self._old)
        self._ask_now = function("nvmlDeviceGetMemoryInfo_v2")
        self._ask_old = function("nvmlDeviceGetMemoryInfo")

    def mebibytes(self) -> tuple[int, int, int] | tuple[None, None, None]:
        """Total, used, free."""
        status = self._ask_now(self._handle, self._now_at)
        if not status:
            _, total, _, free, used = self._now
            return total // MEBIBYTE, used // MEBIBYTE, free // MEBIBYTE
        refused(status)
        status = self._ask_old(self._handle, self._old_at)
        if not status:
            total, free, used = self._old
            return total // MEBIBYTE, used // MEBIBYTE, free // MEBIBYTE
        refused(status)
        return None, None, None


class _Utilization:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._rates = (c_uint * 2)()
        self._at = byref(self._rates)
        self._ask = function("nvmlDeviceGetUtilizationRates")

    def percent(self) -> tuple[float, float] | tuple[None, None]:
        """Of the GPU and of its memory."""
        status = self._ask(self._handle, self._at)
        if status:
            refused(status)
            return None, None
        gpu, memory = self._rates[:]
        return float(gpu), float(memory)


class _RetiredPages:
    """Pages retired for either reason. Asked without room, the driver tells their number alone."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._count = c_uint()
        self._at = byref(self._count)
        self._ask = function("nvmlDeviceGetRetiredPages")

    def count(self) -> int | None:
        total = 0
        for cause in range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT):
            self._count.value = 0
            status = self._ask(self._handle, cause, self._at, None)
            if status and status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                refused(status)
                return None
            total += self._count.value
        return total


class _Links:
    """NVLinks, as many as the device has; those that it refuses to tell about are beyond the last.

    How many there are is asked once: it depends on the model.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._up = c_uint()
        self._at = byref(self._up)
        self._ask = function("nvmlDeviceGetNvLinkState")
        self._count = 0
        while self._count < pynvml.NVML_NVLINK_MAX_LINKS and not self._status(self._count):
            self._count += 1

    def up(self) -> tuple[bool, ...] | None:
        """None without NVLink, and when a link cannot be asked about."""
        if not self._count:
            return None
        handle, ask, at, cell = self._handle, self._ask, self._at, self._up
        states = []
        for link in range(self._count):
            status = ask(handle, link, at)
            if status:
                refused(status)
                return None
            states.append(cell.value == 1)
        return tuple(states)

    def _status(self, link: int) -> int:
        status = self._ask(self._handle, link, self._at)
        if status:
            refused(status)
        return status
