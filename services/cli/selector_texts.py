"""Selectors and preferences as people type them."""

import re
from typing import Final

import click

from schemas.gpus.gpu_request import Preference, Selector, SelectorKey, SelectorOperator

LARGEST_WEIGHT: Final = 100
_OPERATORS: Final = {
    "=": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    ">=": SelectorOperator.AT_LEAST,
    "<=": SelectorOperator.AT_MOST,
    "": SelectorOperator.EXISTS,
}
_SELECTOR: Final = re.compile(r"([a-z_]+)(?::([^=!<>]+))?(?:(=|!=|>=|<=)(.+))?")
_WEIGHTED: Final = re.compile(r"(.+?)(?:\*(\d+))?")
SELECTOR_KEYS: Final = ", ".join(key.value for key in SelectorKey if key is not SelectorKey.LABEL)


def selector(text: str) -> Selector:
    """`gpu_model=H100,A100`, `compute_capability>=8.0`, `label:zone!=b`, `numa_node`.

    Raises BadParameter with what would be one.
    """
    found = _SELECTOR.fullmatch(text.strip())
    key, label, operator, values = found.groups() if found else ("", None, None, None)
    if key not in set(SelectorKey) or (key == SelectorKey.LABEL) != (label is not None):
        raise click.BadParameter(
            f"expected label:NAME or one of {SELECTOR_KEYS}, then nothing or =, !=, >= or <= with"
            f" values, got {text!r}"
        )
    chosen = _OPERATORS[operator or ""]
    given = tuple(part.strip() for part in (values or "").split(",") if part.strip())
    if chosen in {SelectorOperator.AT_LEAST, SelectorOperator.AT_MOST} and len(given) != 1:
        raise click.BadParameter(f"expected one value after {operator}, got {text!r}")
    return Selector(key=SelectorKey(key), operator=chosen, values=given, label=label)


def preference(text: str) -> Preference:
    """A selector, with `*10` behind it of that weight, else of 1. Raises BadParameter."""
    found = _WEIGHTED.fullmatch(text.strip())
    named, weight = found.groups() if found else (text, None)
    if weight is not None and not 1 <= int(weight) <= LARGEST_WEIGHT:
        raise click.BadParameter(f"expected a weight from 1 to {LARGEST_WEIGHT}, got {weight}")
    return Preference(selector=selector(named), weight=int(weight or 1))
