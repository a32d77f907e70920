"""Kubernetes' way to write a number."""

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_FACTORS: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
MEBIBYTE: Final = 1 << 20


def whole(text: str) -> int:
    """Rounded up and never below 0, as the scheduler counts; 0 for what is no quantity."""
    return _ceiling(_value(text))


def milli(text: str) -> int:
    """Thousandths, rounded up and never below 0."""
    return _ceiling(_value(text) * 1000)


def milli_down(text: str) -> int:
    """Thousandths, rounded down and never below 0."""
    return max(0, int(_value(text) * 1000))


def mebibytes_up(text: str) -> int:
    """Bytes as mebibytes, rounded up and never below 0."""
    return _ceiling(_value(text) / MEBIBYTE)


def mebibytes(text: str) -> int:
    """Bytes as whole mebibytes."""
    return int(_value(text) / MEBIBYTE)


def _ceiling(value: Fraction) -> int:
    return max(0, -(-value.numerator // value.denominator))


@lru_cache(maxsize=4096)  # pods of a cluster say the same few amounts
def _value(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return Fraction(0)
    number, exponent, suffix = match.groups()
    return Fraction(Decimal(f"{number}{exponent or ''}")) * _FACTORS.get(suffix, 1)
