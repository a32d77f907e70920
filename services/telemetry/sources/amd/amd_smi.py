"""What `amd-smi ... --json` says, in the shapes of ROCm 6.0 to 7.

Names come from the tool's own source (amdsmi_commands.py of several releases); sizes are MiB where
it writes MB, energy is joules.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from schemas.telemetry.readings import DeviceFacts, GpuProcess, GpuReading
from services.telemetry.sources.amd.values import (
    amount,
    at,
    clock_mhz,
    count,
    entries,
    memory_mb,
    text,
)

LISTS: Final = ("gpu_data", "gpus")
_NONE: Final = "no running process"
MAX_UUID: Final = 120  # of 128 that a device may have, with a partition's number behind it
_SOCKET_POWER: Final = (
    "power.socket_power",
    "power.current_socket_power",
    "power.current_power",
    "power.average_socket_power",
    "power.average_power",
)
_GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def uuids_by_index(listed: Any) -> dict[int, str]:
    """Uuid, else PCI address, of each GPU in `amd-smi list`.

    Older releases give all partitions of a GPU its one uuid: each has its number behind it then.
    """
    uuids: dict[int, str] = {}
    partitions: dict[int, int] = {}
    for entry in entries(listed, *LISTS):
        index, uuid = count(entry.get("gpu")), text(entry.get("uuid")) or text(entry.get("bdf"))
        if index is not None and uuid is not None and len(uuid) <= MAX_UUID:
            uuids.setdefault(index, uuid)
            partition = count(entry.get("partition_id"))
            partitions.setdefault(index, index if partition is None else partition)
    times = Counter(uuids.values())
    return {
        index: uuid if times[uuid] == 1 else f"{uuid}-{partitions[index]}"
        for index, uuid in uuids.items()
    }


def device_facts(listed: Any, static: Any) -> tuple[DeviceFacts, ...]:
    """The GPUs of `amd-smi list` with what `amd-smi static` says about them."""
    uuids = uuids_by_index(listed)
    described = _by_index(static)
    return tuple(
        _facts(uuid, index, described.get(index, {})) for index, uuid in sorted(uuids.items())
    )


def driver_version(static: Any) -> str | None:
    """Return the driver version of the first GPU that has one."""
    versions = (
        text(at(entry, "driver.version", "driver.driver_version"))
        for entry in entries(static, *LISTS)
    )
    return next((version for version in versions if version), None)


def indices(document: Any) -> set[int]:
    """The GPUs that a document is about."""
    return set(_by_index(document))


def readings(
    metric: Any, facts: Mapping[int, DeviceFacts], limits: Mapping[int, float]
) -> tuple[GpuReading, ...]:
    """The GPUs of `amd-smi metric` that are known, by index.

    `limits` are power limits of `amd-smi static`, for releases whose metrics have none.
    """
    metrics = _by_index(metric)
    return tuple(
        _reading(entry, facts[index], limits.get(index))
        for index, entry in sorted(metrics.items())
        if index in facts
    )


def power_limits(static: Any) -> dict[int, float]:
    """Return the power limits in watts, by index."""
    limits = {
        index: amount(
            at(
                entry,
                "limit.socket_power_limit",
                "limit.ppt0.socket_power_limit",
                "limit.socket_power",
                "limit.current_power",
            )
        )
        for index, entry in _by_index(static).items()
    }
    return {index: limit for index, limit in limits.items() if limit is not None}


def processes(document: Any) -> dict[int, tuple[GpuProcess, ...]] | None:
    """Return the processes by index; None if the document is of another shape.

    A GPU whose list says neither its processes nor that there are none, but `N/A`, is left out.
    """
    by_index: dict[int, tuple[GpuProcess, ...]] = {}
    for entry in entries(document, *LISTS):
        index, listed = count(entry.get("gpu")), entry.get("process_list")
        if index is None or (listed is not None and not isinstance(listed, list | str)):
            return None
        items = listed if isinstance(listed, list) else [] if listed is None else [listed]
        infos = [i.get("process_info", i) if isinstance(i, Mapping) else i for i in items]
        if any(isinstance(info, str) and not info.lower().startswith(_NONE) for info in infos):
            continue
        parsed = [_process(info) for info in infos if isinstance(info, Mapping)]
        by_index[index] = tuple(process for process in parsed if process is not None)
    return by_index or None


def _by_index(document: Any) -> dict[int, Mapping[str, Any]]:
    entry_by_index: dict[int, Mapping[str, Any]] = {}
    for entry in entries(document, *LISTS):
        index = count(entry.get("gpu"))
        if index is not None:
            entry_by_index.setdefault(index, entry)
    return entry_by_index


def _process(info: Mapping[str, Any]) -> GpuProcess | None:
    pid = count(at(info, "pid", "process_id"))
    if pid is None:
        return None
    return GpuProcess(
        pid=pid,
        name=text(at(info, "name", "process_name")),
        memory_used_mb=memory_mb(at(info, "memory_usage.vram_mem", "vram_mem", "mem_usage"), "b"),
    )


def _facts(uuid: str, index: int, entry: Mapping[str, Any]) -> DeviceFacts:
    limits = ("max_power_limit", "ppt0.max_power_limit", "max_power")
    lowest = ("min_power_limit", "ppt0.min_power_limit", "min_power")
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=text(at(entry, "asic.market_name", "board.product_name")) or "unknown",
        memory_total_mb=memory_mb(at(entry, "vram.size", "vram.vram_size_mb")),
        pci_bus_id=text(at(entry, "bus.bdf")),
        serial=text(at(entry, "board.product_serial", "asic.asic_serial")),
        numa_node=count(at(entry, "numa.node")),
        power_limit_min_w=amount(at(entry, *(f"limit.{name}" for name in lowest))),
        power_limit_max_w=amount(at(entry, *(f"limit.{name}" for name in limits))),
        pcie_generation_max=_generation(at(entry, "bus.max_pcie_speed")),
        pcie_width_max=count(at(entry, "bus.max_pcie_width", "bus.max_pcie_lanes")),
    )


def _reading(
    entry: Mapping[str, Any], facts: DeviceFacts, power_limit_w: float | None
) -> GpuReading:
    total = memory_mb(at(entry, "mem_usage.total_vram"))
    used = memory_mb(at(entry, "mem_usage.used_vram"))
    free = memory_mb(at(entry, "mem_usage.free_vram"))
    if free is None and total is not None and used is not None:
        free = total - used
    joules = amount(at(entry, "energy.total_energy_consumption"))
    limit = amount(at(entry, "power.power_limit"))
    return GpuReading(
        uuid=facts.uuid,
        index=facts.index,
        name=facts.name,
        utilization_percent=amount(at(entry, "usage.gfx_activity", "usage.gfx_usage")),
        memory_total_mb=total if total is not None else facts.memory_total_mb,
        memory_used_mb=used,
        memory_free_mb=free,
        # Accelerators without a sensor at the edge of the die have one at its hottest spot.
        temperature_c=amount(at(entry, "temperature.edge", "temperature.hotspot")),
        power_draw_w=amount(at(entry, *_SOCKET_POWER)),
        power_limit_w=power_limit_w if limit is None else limit,
        energy_mj=None if joules is None else int(joules * 1000),
        sm_clock_mhz=clock_mhz(at(entry, "clock.gfx_0.clk", "clock.gfx.clk", "clock.gfx.cur_clk")),
        memory_clock_mhz=clock_mhz(
            at(entry, "clock.mem_0.clk", "clock.mem.clk", "clock.mem.cur_clk", "clock.MEM.cur_clk")
        ),
        throttle_reasons=_throttle(at(entry, "power.throttle_status")),
        ecc_corrected=count(
            at(entry, "ecc.total_correctable_count", "ecc.total_correctable", "ecc.correctable")
        ),
        ecc_uncorrected=count(
            at(
                entry,
                "ecc.total_uncorrectable_count",
                "ecc.total_uncorrectable",
                "ecc.uncorrectable",
            )
        ),
        fan_percent=amount(at(entry, "fan.usage")),
        memory_utilization_percent=amount(at(entry, "usage.umc_activity", "usage.mem_usage")),
        pcie_generation=_generation(at(entry, "pcie.speed", "pcie.current_speed")),
        pcie_width=count(at(entry, "pcie.width", "pcie.current_lanes")),
    )


def _generation(speed: Any) -> int | None:
    """The PCIe generation of a speed in GT/s."""
    rate = amount(speed)
    return None if rate is None else _GENERATIONS.get(rate)


def _throttle(status: Any) -> tuple[str, ...] | None:
    return {"UNTHROTTLED": (), "THROTTLED": ("throttled",)}.get(text(status) or "")
