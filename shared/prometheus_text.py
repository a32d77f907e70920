"""The samples of a Prometheus text page."""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_SAMPLE = re.compile(
    r"^\s*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)\s*"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$"
)
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n"}


class Sample(NamedTuple):
    """One line; its timestamp is dropped."""

    name: str
    labels: dict[str, str]
    value: float


def samples(page: str) -> Iterator[Sample]:
    """Yield every sample with a finite value; comments and torn lines are passed over."""
    for line in page.splitlines():
        if not line or line.lstrip().startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            yield Sample(match["name"], _labels(match["labels"] or ""), value)


def _labels(text: str) -> dict[str, str]:
    return {
        name: _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), value)
        if "\\" in value
        else value
        for name, value in _LABEL.findall(text)
    }
