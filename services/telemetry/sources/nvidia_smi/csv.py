"""Parses the CSV of one nvidia-smi query, line by line and field by field."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.domain.throttle import throttle_reasons
from services.telemetry.domain.tool_values import amount, claim, count, number, text

QUERY_FIELDS: Final = (
    "index",
    "uuid",
    "name",
    "utilization.gpu",
    "memory.total",
    "memory.used",
    "memory.free",
    "temperature.gpu",
    "power.draw",
    "enforced.power.limit",
    "clocks.sm",
    "clocks.mem",
    "clocks_throttle_reasons.active",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "pci.bus_id",
    "serial",
    "compute_cap",
    "mig.mode.current",
    "driver_version",
    "pstate",
    "fan.speed",
    "utilization.memory",
    "utilization.encoder",
    "utilization.decoder",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "retired_pages.sbe",
    "retired_pages.dbe",
    "retired_pages.pending",
    "remapped_rows.correctable",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
)
NEEDED_FIELDS: Final = frozenset({"index", "uuid"})
# Names that drivers from 535 on give to what they may one day refuse under its older name.
NEWER_NAMES: Final = {"clocks_throttle_reasons.active": "clocks_event_reasons.active"}

_OLDER_NAMES: Final = {newer: older for older, newer in NEWER_NAMES.items()}
_REFUSED_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_DEVICES = re.compile(r"^No devices were found", re.MULTILINE)
# A complaint may have no blank before it: GPU0002:00:00.0.
_BUS_ID = re.compile(
    r"(?:\b|(?<=GPU))(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\b", re.IGNORECASE
)
# What it warns of in lines of their own, with exit code 14, while all else works.
_WARNING: Final = re.compile(r"^\s*WARNING: ")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """One line that named its GPU."""

    facts: DeviceFacts
    reading: GpuReading
    driver_version: str | None


@dataclass(frozen=True, slots=True)
class SmiReport:
    """The GPUs of one query, ordered by index, and the lines that could not be used."""

    gpus: tuple[SmiGpu, ...]
    problems: tuple[str, ...]


def find_refused_field(output: str) -> str | None:
    """The field that this version of nvidia-smi does not know, if it complains about one."""
    match = _REFUSED_FIELD.search(output)
    return match.group(1) if match else None


def without(fields: Sequence[str], refused: str) -> tuple[str, ...]:
    """The query for a version that refused a field: under its newer name, else without it."""
    instead = [NEWER_NAMES[refused]] if refused in NEWER_NAMES else []
    return tuple(used for name in fields for used in (instead if name == refused else [name]))


def is_warning(line: str) -> bool:
    """Return whether nvidia-smi warns of something that it works with all the same, such as a
    damaged infoROM.
    """
    return _WARNING.match(line) is not None


def reports_no_devices(output: str) -> bool:
    """Return True if nvidia-smi works and there is no device."""
    return _NO_DEVICES.search(output) is not None


def bus_key(bus_id: str) -> str:
    """Return one spelling of a PCI address: nvidia-smi writes its domain in four or in eight
    digits.
    """
    match = _BUS_ID.search(bus_id)
    if match is None:
        return bus_id.lower()
    return f"{int(match.group(1) or '0', 16):x}:{match.group(2).lower()}"


def lost_devices(problems: Sequence[str], uuid_by_bus: Mapping[str, str]) -> dict[str, str]:
    """Uuid to complaint, for lines that name a known device by its PCI address.

    `uuid_by_bus` has keys of `bus_key`. A device that nvidia-smi only warns of is not lost.
    """
    lost: dict[str, str] = {}
    for line in problems:
        match = None if is_warning(line) else _BUS_ID.search(line)
        uuid = uuid_by_bus.get(bus_key(match.group(0))) if match else None
        if uuid is not None:
            lost.setdefault(uuid, line)
    return lost


def parse_report(output: str, fields: Sequence[str] = QUERY_FIELDS) -> SmiReport:
    """Read `--format=csv,noheader,nounits` of a query for `fields`.

    A line that does not name its GPU (an error message, a torn line) is a problem; the other lines
    still count. Of two lines for one GPU the first counts.
    """
    gpus: dict[str, SmiGpu] = {}
    problems: list[str] = []
    for line in output.splitlines():
        if not line.strip():
            continue
        gpu = _parse_line(line, fields)
        if gpu is None:
            problems.append(line.strip()[:200])
        else:
            gpus.setdefault(gpu.facts.uuid, gpu)
    return SmiReport(
        tuple(sorted(gpus.values(), key=lambda gpu: gpu.reading.index)), tuple(problems)
    )


def _parse_line(line: str, fields: Sequence[str]) -> SmiGpu | None:
    texts = [part.strip() for part in line.split(",")]
    if len(texts) != len(fields):
        return None
    names = [_OLDER_NAMES.get(name, name) for name in fields]
    row = dict(zip(names, texts, strict=True))
    index, uuid = count(row["index"]), text(row["uuid"])
    if index is None or uuid is None or not uuid.isascii() or " " in uuid or len(uuid) > 128:
        return None
    return SmiGpu(
        facts=_facts(row, uuid, index),
        reading=_reading(row, uuid, index),
        driver_version=_field(row, "driver_version", text),
    )


def _facts(row: Mapping[str, str], uuid: str, index: int) -> DeviceFacts:
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=_field(row, "name", text) or "unknown",
        memory_total_mb=_field(row, "memory.total", count),
        pci_bus_id=_field(row, "pci.bus_id", text),
        serial=_field(row, "serial", text),
        compute_capability=_field(row, "compute_cap", text),
        mig_enabled=_field(row, "mig.mode.current", claim),
        power_limit_default_w=_field(row, "power.default_limit", amount),
        power_limit_min_w=_field(row, "power.min_limit", amount),
        power_limit_max_w=_field(row, "power.max_limit", amount),
        pcie_generation_max=_field(row, "pcie.link.gen.max", count),
        pcie_width_max=_field(row, "pcie.link.width.max", count),
    )


def _reading(row: Mapping[str, str], uuid: str, index: int) -> GpuReading:
    return GpuReading(
        uuid=uuid,
        index=index,
        utilization_percent=_field(row, "utilization.gpu", amount),
        memory_total_mb=_field(row, "memory.total", count),
        memory_used_mb=_field(row, "memory.used", count),
        memory_free_mb=_field(row, "memory.free", count),
        temperature_c=_field(row, "temperature.gpu", number),
        power_draw_w=_field(row, "power.draw", amount),
        power_limit_w=_field(row, "enforced.power.limit", amount),
        sm_clock_mhz=_field(row, "clocks.sm", count),
        memory_clock_mhz=_field(row, "clocks.mem", count),
        throttle_reasons=_field(row, "clocks_throttle_reasons.active", _mask),
        ecc_corrected=_field(row, "ecc.errors.corrected.volatile.total", count),
        ecc_uncorrected=_field(row, "ecc.errors.uncorrected.volatile.total", count),
        name=_field(row, "name", text),
        performance_state=_field(row, "pstate", _performance_state),
        fan_percent=_field(row, "fan.speed", amount),
        memory_utilization_percent=_field(row, "utilization.memory", amount),
        encoder_percent=_field(row, "utilization.encoder", amount),
        decoder_percent=_field(row, "utilization.decoder", amount),
        pcie_generation=_field(row, "pcie.link.gen.current", count),
        pcie_width=_field(row, "pcie.link.width.current", count),
        retired_pages=_sum_retired_pages(row),
        retired_pages_pending=_field(row, "retired_pages.pending", claim),
        remapped_rows_corrected=_field(row, "remapped_rows.correctable", count),
        remapped_rows_uncorrected=_field(row, "remapped_rows.uncorrectable", count),
        remap_pending=_field(row, "remapped_rows.pending", claim),
        remap_failed=_field(row, "remapped_rows.failure", claim),
    )


def _field(row: Mapping[str, str], name: str, parse: Callable[[str], T | None]) -> T | None:
    value = row.get(name)
    return None if value is None else parse(value)


def _sum_retired_pages(row: Mapping[str, str]) -> int | None:
    """Pages retired for either reason; unknown unless both are known."""
    single, double = (
        _field(row, "retired_pages.sbe", count),
        _field(row, "retired_pages.dbe", count),
    )
    return None if single is None or double is None else single + double


def _performance_state(value: str) -> int | None:
    return int(value[1:]) if value[:1] == "P" and value[1:].isdecimal() else None


def _mask(value: str) -> tuple[str, ...] | None:
    try:
        return throttle_reasons(int(value, 16))
    except ValueError:
        return None
