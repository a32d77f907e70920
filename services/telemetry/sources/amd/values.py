"""Values as AMD's tools write them: a number, a text with a unit, or both in an object."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from services.telemetry.domain.tool_values import text as known_text

NO_CLOCK: Final = 0xFFFF
_NUMBER = re.compile(r"^\s*\(?\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z/%°]*)")
# MiB by the names that the tools give to binary units.
_MIB: Final = {"b": 1 / (1 << 20), "kb": 1 / 1024, "mb": 1.0, "gb": 1024.0, "tb": 1024.0 * 1024}


def at(node: Any, *paths: str) -> Any:
    """Return the value at the first of several dotted paths that has one; None for `N/A`."""
    for path in paths:
        value = node
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if _is_known(value):
            return value
    return None


def amount(value: Any) -> float | None:
    """A number that is not negative."""
    number, _ = _number_and_unit(value)
    return number if number is not None and number >= 0 else None


def count(value: Any) -> int | None:
    """A whole number."""
    number = amount(value)
    return None if number is None else int(number)


def clock_mhz(value: Any) -> int | None:
    """A clock; all ones of its 16 bits are no clock, but the tool's word for none."""
    number = count(value)
    return None if number == NO_CLOCK else number


def memory_mb(value: Any, unit: str = "mb") -> int | None:
    """MiB of a size with its unit, or in `unit`."""
    number, unit_text = _number_and_unit(value)
    factor = _MIB.get((unit_text or unit).lower().replace("ib", "b"))
    return None if number is None or number < 0 or factor is None else int(number * factor)


def text(value: Any) -> str | None:
    """A text that says something."""
    return known_text(value.strip()) if isinstance(value, str) else None


def entries(document: Any, *names: str) -> Iterator[Mapping[str, Any]]:
    """The GPUs of a document: the list that it is, or that it has under one of these names."""
    if isinstance(document, Mapping):
        document = next((document[name] for name in names if name in document), [document])
    if isinstance(document, Sequence) and not isinstance(document, str):
        yield from (entry for entry in document if isinstance(entry, Mapping))


def _is_known(value: Any) -> bool:
    if isinstance(value, Mapping) and "value" in value:
        value = value["value"]
    return value is not None and not (isinstance(value, str) and known_text(value) is None)


def _number_and_unit(value: Any) -> tuple[float | None, str | None]:
    """A number and its unit, as far as it has one."""
    if isinstance(value, Mapping):
        number, unit = _number_and_unit(value.get("value"))
        unit_value = value.get("unit")
        return number, unit_value if isinstance(unit_value, str) and unit_value else unit
    if isinstance(value, bool):
        return None, None
    if isinstance(value, int | float):
        return (float(value), None) if math.isfinite(value) else (None, None)
    match = _NUMBER.match(value) if isinstance(value, str) else None
    return (float(match[1]), match[2] or None) if match else (None, None)
