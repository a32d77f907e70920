"""Selectors and preferences as people type them."""

import re
from typing import Final

import click

from schemas.gpus.gpu_request import Preference, Selector, SelectorKey, SelectorOperator

MAX_WEIGHT: Final = 100
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
    match = _SELECTOR.fullmatch(text.strip())
    key, label, operator, values = match.groups() if match else ("", None, None, None)
    if key not in set(SelectorKey) or (key == SelectorKey.LABEL) != (label is not None):
        raise click.BadParameter(
            f"expected label:NAME or one of {SELECTOR_KEYS}, then nothing or =, !=, >= or <= with"
            f" values, got {text!r}"
        )
    selector_operator = _OPERATORS[operator or ""]
    value_list = tuple(part.strip() for part in (values or "").split(",") if part.strip())
    if (
        selector_operator in {SelectorOperator.AT_LEAST, SelectorOperator.AT_MOST}
        and len(value_list) != 1
    ):
        raise click.BadParameter(f"expected one value after {operator}, got {text!r}")
    return Selector(
        key=SelectorKey(key), operator=selector_operator, values=value_list, label=label
    )


def preference(text: str) -> Preference:
    """A selector, with `*10` behind it of that weight, else of 1. Raises BadParameter."""
    match = _WEIGHTED.fullmatch(text.strip())
    selector_text, weight = match.groups() if match else (text, None)
    if weight is not None and not 1 <= int(weight) <= MAX_WEIGHT:
        raise click.BadParameter(f"expected a weight from 1 to {MAX_WEIGHT}, got {weight}")
    return Preference(selector=selector(selector_text), weight=int(weight or 1))
