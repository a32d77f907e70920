"""One reading of one device."""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import pynvml

from schemas.telemetry.readings import GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.calls import (
    Entries,
    Handle,
    Numbers,
    find_function,
    try_call,
)
from services.telemetry.sources.nvml.child.driver_samples import DriverSamples
from services.telemetry.sources.nvml.child.processes import ProcessTurns, RunningProcesses

MEBIBYTE: Final = 1 << 20
_ADDRESS_BYTES: Final = 8
# The first call reads it where it writes. It counts as nvidia-smi does: what the driver reserves is
# not used memory.
_MEMORY_VERSION: Final = Struct("I").pack(pynvml.nvmlMemory_v2)
_CALLS: Final = (
    ("nvmlDeviceGetMemoryInfo_v2", "8xQ8xQQ"),
    ("nvmlDeviceGetUtilizationRates", "II"),
    ("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU, "Q"),
    ("nvmlDeviceGetPowerUsage", "Q"),
    ("nvmlDeviceGetEnforcedPowerLimit", "Q"),
    ("nvmlDeviceGetTotalEnergyConsumption", "Q"),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM, "Q"),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM, "Q"),
    ("nvmlDeviceGetCurrentClocksEventReasons", "Q"),
    (
        "nvmlDeviceGetTotalEccErrors",
        *(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC, "Q"),
    ),
    (
        "nvmlDeviceGetTotalEccErrors",
        *(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC, "Q"),
    ),
    ("nvmlDeviceGetPerformanceState", "Q"),
    ("nvmlDeviceGetFanSpeed", "Q"),
    ("nvmlDeviceGetEncoderUtilization", "Q", "8x"),  # the second is the time it was taken over
    ("nvmlDeviceGetDecoderUtilization", "Q", "8x"),
    ("nvmlDeviceGetCurrPcieLinkGeneration", "Q"),
    ("nvmlDeviceGetCurrPcieLinkWidth", "Q"),
    ("nvmlDeviceGetRetiredPagesPendingStatus", "?7x"),
    ("nvmlDeviceGetRemappedRows", "Q", "Q", "?7x", "?7x"),
    ("nvmlDeviceGetMigMode", "?7x", "8x"),  # the second is the one after the next reset
)

_reasons = lru_cache(maxsize=256)(throttle_reasons)


class DeviceReader:
    """Everything that is read of a device at every tick.

    `mig_enabled` is what the last reading found; None if the device has no such mode. The PCIe
    throughput is left out: the driver measures it for 20 ms per call.
    """

    def __init__(
        self, uuid: str, index: int, name: str, handle: Handle, table: ProcessTable
    ) -> None:
        self._uuid, self._index, self._name = uuid, index, name
        self.mig_enabled: bool | None = None
        self._handle = handle
        self._processes = RunningProcesses(handle, table)
        self._samples = DriverSamples(handle)
        self._turns = ProcessTurns(handle)
        self._retired_pages = [
            Entries(_ADDRESS_BYTES, find_function("nvmlDeviceGetRetiredPages"), handle, cause)
            for cause in range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)
        ]
        # Depends on the model: the driver refuses what is beyond the last link.
        links = 0
        while (
            links < pynvml.NVML_NVLINK_MAX_LINKS
            and try_call(pynvml.nvmlDeviceGetNvLinkState, handle, links) is not None
        ):
            links += 1
        link_calls = (("nvmlDeviceGetNvLinkState", link, "?7x") for link in range(links))
        self._numbers = Numbers(handle, (*_CALLS, *link_calls), first_bytes=_MEMORY_VERSION)

    def read(self) -> GpuReading:
        """Raises GpuLostError, and NVMLError when NVML as a whole does not work."""
        numbers = self._numbers.read()
        total, free, used, busy, memory_busy, celsius, draw_mw, limit_mw, energy_mj = numbers[:9]
        sm_mhz, memory_mhz, reasons, corrected, uncorrected, state, fan = numbers[9:16]
        encoder, decoder, generation, width, pending, *remapped = numbers[16:25]
        self.mig_enabled = numbers[25]
        links = numbers[26:]
        if total is None and (memory := self._ask(pynvml.nvmlDeviceGetMemoryInfo)) is not None:
            # Drivers before 510, which count as used what they reserve.
            total, free, used = memory.total, memory.free, memory.used
        if reasons is None:  # its name before driver 535
            reasons = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return GpuReading(
            uuid=self._uuid,
            index=self._index,
            utilization_percent=busy,
            memory_total_mb=_mebibytes(total),
            memory_used_mb=_mebibytes(used),
            memory_free_mb=_mebibytes(free),
            temperature_c=celsius,
            power_draw_w=None if draw_mw is None else draw_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            energy_mj=energy_mj,
            sm_clock_mhz=sm_mhz,
            memory_clock_mhz=memory_mhz,
            throttle_reasons=None if reasons is None else _reasons(reasons),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            processes=self._turns.add_to(self._processes.read(), busy),
            name=self._name,
            # NVML_PSTATE_UNKNOWN is 32; the states that there are end with P15.
            performance_state=state if state is not None and state < 16 else None,
            fan_percent=fan,
            memory_utilization_percent=memory_busy,
            encoder_percent=encoder,
            decoder_percent=decoder,
            pcie_generation=generation,
            pcie_width=width,
            retired_pages=self._count_retired_pages(),
            retired_pages_pending=pending,
            remapped_rows_corrected=remapped[0],
            remapped_rows_uncorrected=remapped[1],
            remap_pending=remapped[2],
            remap_failed=remapped[3],
            # Unknown without NVLink, and when a link does not give its state.
            nvlinks_up=tuple(links) if links and None not in links else None,
            buffered=self._samples.since_last(),
        )

    def _ask(self, call: Callable[..., Any], *arguments: int) -> Any:
        return try_call(call, self._handle, *arguments)

    def _count_retired_pages(self) -> int | None:
        """Count pages retired for either reason; None unless both counts are known."""
        total = 0
        for pages in self._retired_pages:
            addresses = pages.read()
            if addresses is None:
                return None
            total += len(addresses) // _ADDRESS_BYTES
        return total


def _mebibytes(number: int | None) -> int | None:
    return None if number is None else number // MEBIBYTE
