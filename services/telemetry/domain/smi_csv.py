"""What one CSV query of nvidia-smi says, line by line and field by field."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from schemas.telemetry import DeviceFacts, GpuReading
from services.telemetry.domain.throttle import throttle_reasons

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
)
NEEDED_FIELDS: Final = frozenset({"index", "uuid"})

_REFUSED_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_DEVICES = re.compile(r"^No devices were found", re.MULTILINE)
_UNKNOWN: Final = frozenset({"", "n/a", "err!", "unknown error", "not supported", "not available"})

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


def refused_field(output: str) -> str | None:
    """The field that this version of nvidia-smi does not know, if it complains about one."""
    found = _REFUSED_FIELD.search(output)
    return found.group(1) if found else None


def reports_no_devices(output: str) -> bool:
    """Whether nvidia-smi works and says that there is nothing to see."""
    return _NO_DEVICES.search(output) is not None


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
    texts = [text.strip() for text in line.split(",")]
    if len(texts) != len(fields):
        return None
    row = dict(zip(fields, texts, strict=True))
    index, uuid = _count(row["index"]), _text(row["uuid"])
    if index is None or uuid is None or not uuid.isascii() or " " in uuid or len(uuid) > 128:
        return None
    return SmiGpu(
        facts=_facts(row, uuid, index),
        reading=_reading(row, uuid, index),
        driver_version=_field(row, "driver_version", _text),
    )


def _facts(row: Mapping[str, str], uuid: str, index: int) -> DeviceFacts:
    mig = _field(row, "mig.mode.current", _text)
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=_field(row, "name", _text) or "unknown",
        memory_total_mb=_field(row, "memory.total", _count),
        pci_bus_id=_field(row, "pci.bus_id", _text),
        serial=_field(row, "serial", _text),
        compute_capability=_field(row, "compute_cap", _text),
        mig_enabled={"Enabled": True, "Disabled": False}.get(mig) if mig else None,
    )


def _reading(row: Mapping[str, str], uuid: str, index: int) -> GpuReading:
    return GpuReading(
        uuid=uuid,
        index=index,
        utilization_percent=_field(row, "utilization.gpu", _amount),
        memory_total_mb=_field(row, "memory.total", _count),
        memory_used_mb=_field(row, "memory.used", _count),
        memory_free_mb=_field(row, "memory.free", _count),
        temperature_c=_field(row, "temperature.gpu", _number),
        power_draw_w=_field(row, "power.draw", _amount),
        power_limit_w=_field(row, "enforced.power.limit", _amount),
        sm_clock_mhz=_field(row, "clocks.sm", _count),
        memory_clock_mhz=_field(row, "clocks.mem", _count),
        throttle_reasons=_field(row, "clocks_throttle_reasons.active", _mask),
        ecc_corrected=_field(row, "ecc.errors.corrected.volatile.total", _count),
        ecc_uncorrected=_field(row, "ecc.errors.uncorrected.volatile.total", _count),
        name=_field(row, "name", _text),
    )


def _field(row: Mapping[str, str], name: str, parse: Callable[[str], T | None]) -> T | None:
    text = row.get(name)
    return None if text is None else parse(text)


def _text(text: str) -> str | None:
    return None if text.strip("[] ").lower() in _UNKNOWN else text


def _number(text: str) -> float | None:
    try:
        value = float(text.partition(" ")[0])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _amount(text: str) -> float | None:
    value = _number(text)
    return value if value is not None and value >= 0 else None


def _count(text: str) -> int | None:
    value = _amount(text)
    return None if value is None else int(value)


def _mask(text: str) -> tuple[str, ...] | None:
    try:
        return throttle_reasons(int(text, 16))
    except ValueError:
        return None
