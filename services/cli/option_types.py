"""Types of options that several commands have."""

import math
from typing import Any, Final

import click

from schemas.base import LARGEST_INTEGER

MEBIBYTES: Final = click.IntRange(0, LARGEST_INTEGER)


class NumberRange(click.FloatRange):
    """A range that what is no number is not in."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a number, got {value}", param, ctx)
        return number
