"""What `rocm-smi ... --json` says, for hosts that have no amd-smi.

Its keys are the sentences of its table, and differ in case and wording between releases.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.amd.values import amount, at, count, memory_mb, text

ARGUMENTS: Final = (
    "--showuse",
    "--showmemuse",
    "--showpower",
    "--showmaxpower",
    "--showtemp",
    "--showclocks",
    "--showfan",
    "--showbus",
    "--showserial",
    "--showuniqueid",
    "--showproductname",
    "--showdriverversion",
    "--showmeminfo",
    "vram",
    "--json",
)
_CARD = re.compile(r"^card(\d+)$")
_Card = Mapping[str, Any]  # by names in lower case


def devices(document: Any) -> tuple[DeviceFacts, ...]:
    """The cards by number."""
    return tuple(_facts(index, card) for index, card in _cards(document))


def readings(document: Any) -> tuple[GpuReading, ...]:
    """The cards by number, without their processes: the tool does not say which card those use."""
    return tuple(_reading(index, card) for index, card in _cards(document))


def driver_version(document: Any) -> str | None:
    system = document.get("system") if isinstance(document, Mapping) else None
    return text(at(_card_of(system), "driver version")) if isinstance(system, Mapping) else None


def _cards(document: Any) -> Iterator[tuple[int, _Card]]:
    cards = {
        int(match[1]): _card_of(values)
        for name, values in (document.items() if isinstance(document, Mapping) else ())
        if (match := _CARD.match(name)) and isinstance(values, Mapping)
    }
    for index in sorted(cards):
        yield index, cards[index]


def _card_of(values: Mapping[str, Any]) -> _Card:
    return {name.lower().rstrip(":"): value for name, value in values.items()}


def _uuid(index: int, card: _Card) -> str:
    unique, bus = text(at(card, "unique id")), text(at(card, "pci bus"))
    return f"GPU-{unique}" if unique else bus or f"card{index}"


def _name(card: _Card) -> str | None:
    return text(at(card, "card series", "card model", "device name"))


def _memory(card: _Card) -> tuple[int | None, int | None]:
    total = memory_mb(at(card, "vram total memory (b)"), "b")
    return total, memory_mb(at(card, "vram total used memory (b)"), "b")


def _facts(index: int, card: _Card) -> DeviceFacts:
    return DeviceFacts(
        uuid=_uuid(index, card),
        index=index,
        name=_name(card) or "unknown",
        memory_total_mb=_memory(card)[0],
        pci_bus_id=text(at(card, "pci bus")),
        serial=text(at(card, "serial number")),
    )


def _reading(index: int, card: _Card) -> GpuReading:
    total, used = _memory(card)
    return GpuReading(
        uuid=_uuid(index, card),
        index=index,
        name=_name(card),
        utilization_percent=amount(at(card, "gpu use (%)")),
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=None if total is None or used is None else total - used,
        temperature_c=amount(
            at(card, "temperature (sensor edge) (c)", "temperature (sensor junction) (c)")
        ),
        power_draw_w=amount(
            at(
                card,
                "current socket graphics package power (w)",
                "average graphics package power (w)",
            )
        ),
        power_limit_w=amount(at(card, "max graphics package power (w)")),
        sm_clock_mhz=count(at(card, "sclk clock speed")),
        memory_clock_mhz=count(at(card, "mclk clock speed")),
        fan_percent=amount(at(card, "fan speed (%)")),
        memory_utilization_percent=amount(
            at(card, "gpu memory read/write activity (%)", "gpu memory use (%)")
        ),
    )
