"""Types of options that several commands have."""

import math
import re
from typing import Any, Final

import click
from typing_extensions import override

from schemas.base import MAX_INTEGER

_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT])i?B?", re.ASCII | re.IGNORECASE)
_MEBIBYTES: Final = {"M": 1, "G": 1024, "T": 1024 * 1024}


class Mebibytes(click.IntRange):
    """Mebibytes: 40960, or with a unit 40G, 40GB, 40GiB."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if match := _SIZE.fullmatch(text):
            size = round(float(match[1]) * _MEBIBYTES[match[2].upper()])
        elif re.fullmatch(r"-?\d+", text, re.ASCII):
            size = int(text)
        else:
            self.fail(f"expected MB, or a size such as 40G or 512M, got {value!r}", param, ctx)
        number: int = super().convert(size, param, ctx)
        return number


MEBIBYTES: Final = Mebibytes(0, MAX_INTEGER)


class NumberRange(click.FloatRange):
    """A range that what is no number is not in."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a number, got {value}", param, ctx)
        return number


class SecondsRange(NumberRange):
    """Seconds in a range: 90, or with a unit 90s, 30m, 2h, 1d, 1h30m."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip().lower()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", text, re.ASCII)
        if parts and "".join(number + unit for number, unit in parts) == text:
            return super().convert(
                sum(float(number) * _SECONDS[unit] for number, unit in parts), param, ctx
            )
        try:
            float(text)
        except ValueError:
            self.fail(f"expected seconds, or a time such as 30m or 2h, got {value!r}", param, ctx)
        return super().convert(value, param, ctx)
