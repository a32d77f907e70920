"""One reading of one device."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import pynvml

from schemas.telemetry.readings import GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.nvml.child.calls import Handle, Numbers, try_call
from services.telemetry.sources.nvml.child.driver_samples import DriverSamples
from services.telemetry.sources.nvml.child.processes import ProcessTurns, running_processes

MEBIBYTE: Final = 1 << 20

_NUMBERS: Final = (
    ("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
    ("nvmlDeviceGetPowerUsage",),
    ("nvmlDeviceGetEnforcedPowerLimit",),
    ("nvmlDeviceGetTotalEnergyConsumption",),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
    ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
    (
        "nvmlDeviceGetTotalEccErrors",
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    ),
    (
        "nvmlDeviceGetTotalEccErrors",
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    ),
    ("nvmlDeviceGetPerformanceState",),
    ("nvmlDeviceGetFanSpeed",),
    ("nvmlDeviceGetCurrPcieLinkGeneration",),
    ("nvmlDeviceGetCurrPcieLinkWidth",),
    ("nvmlDeviceGetRetiredPagesPendingStatus",),
)

_reasons = lru_cache(maxsize=256)(throttle_reasons)


class DeviceReader:
    """Everything that is read of a device at every tick.

    The PCIe throughput is left out: the driver measures it for 20 ms per call.
    """

    def __init__(
        self, uuid: str, index: int, name: str, handle: Handle, table: ProcessTable
    ) -> None:
        self._uuid, self._index, self._name = uuid, index, name
        self._handle = handle
        self._table = table
        self._samples = DriverSamples(handle)
        self._turns = ProcessTurns(handle)
        # Depends on the model: the driver refuses what is beyond the last link.
        links = 0
        while (
            links < pynvml.NVML_NVLINK_MAX_LINKS
            and self._ask(pynvml.nvmlDeviceGetNvLinkState, links) is not None
        ):
            links += 1
        link_calls = (("nvmlDeviceGetNvLinkState", link) for link in range(links))
        self._numbers = Numbers(handle, (*_NUMBERS, *link_calls))

    def read(self) -> GpuReading:
        """Raises GpuLostError, and NVMLError when NVML as a whole does not work."""
        ask = self._ask
        numbers = self._numbers.read()
        celsius, draw_mw, limit_mw, energy_mj, sm_mhz, memory_mhz, corrected, uncorrected = numbers[
            :8
        ]
        state, fan, generation, width, pending, *links = numbers[8:]
        total, used, free = self._memory_mb()
        busy = ask(pynvml.nvmlDeviceGetUtilizationRates)
        encoder = ask(pynvml.nvmlDeviceGetEncoderUtilization)
        decoder = ask(pynvml.nvmlDeviceGetDecoderUtilization)
        rows = ask(pynvml.nvmlDeviceGetRemappedRows)
        return GpuReading(
            uuid=self._uuid,
            index=self._index,
            utilization_percent=None if busy is None else float(busy.gpu),
            memory_total_mb=total,
            memory_used_mb=used,
            memory_free_mb=free,
            temperature_c=None if celsius is None else float(celsius),
            power_draw_w=None if draw_mw is None else draw_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            energy_mj=energy_mj,
            sm_clock_mhz=sm_mhz,
            memory_clock_mhz=memory_mhz,
            throttle_reasons=self._throttle_reasons(),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            processes=self._turns.add_to(running_processes(self._handle, self._table), busy),
            name=self._name,
            # NVML_PSTATE_UNKNOWN is 32; the states that there are end with P15.
            performance_state=state if state is not None and state < 16 else None,
            fan_percent=None if fan is None else float(fan),
            memory_utilization_percent=None if busy is None else float(busy.memory),
            encoder_percent=None if encoder is None else float(encoder[0]),
            decoder_percent=None if decoder is None else float(decoder[0]),
            pcie_generation=generation,
            pcie_width=width,
            retired_pages=self._count_retired_pages(),
            retired_pages_pending=None if pending is None else pending == 1,
            remapped_rows_corrected=None if rows is None else rows[0],
            remapped_rows_uncorrected=None if rows is None else rows[1],
            remap_pending=None if rows is None else rows[2] == 1,
            remap_failed=None if rows is None else rows[3] == 1,
            nvlinks_up=_links_up(links),
            buffered=self._samples.since_last(),
        )

    def _ask(self, call: Callable[..., Any], *arguments: int) -> Any:
        return try_call(call, self._handle, *arguments)

    def _memory_mb(self) -> tuple[int, int, int] | tuple[None, None, None]:
        """Total, used, free, as nvidia-smi counts: `used` is without what the driver reserves.

        Drivers before 510 count that in.
        """
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if memory is None:
            memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        if memory is None:
            return None, None, None
        return memory.total // MEBIBYTE, memory.used // MEBIBYTE, memory.free // MEBIBYTE

    def _throttle_reasons(self) -> tuple[str, ...] | None:
        mask = self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if mask is None:  # its name before driver 535
            mask = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if mask is None else _reasons(mask)

    def _count_retired_pages(self) -> int | None:
        """Count pages retired for either reason; None unless both counts are known."""
        total = 0
        for cause in range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT):
            pages = self._ask(pynvml.nvmlDeviceGetRetiredPages, cause)
            if pages is None:
                return None
            total += len(pages)
        return total


def _links_up(states: list[int | None]) -> tuple[bool, ...] | None:
    """Return whether each link is up; None without NVLink, and when a link does not give its
    state.
    """
    return tuple(state == 1 for state in states) if states and None not in states else None
