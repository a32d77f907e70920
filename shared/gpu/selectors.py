"""What a selector compares with, and whether it can match anything at all."""

import re
from collections.abc import Iterable
from typing import Final

from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import Selector, SelectorKey, SelectorOperator
from shared.errors import RefusedError

_VERSION: Final = re.compile(r"\d{1,18}(?:\.\d{1,18}){0,15}")
_NAMES: Final = frozenset({SelectorKey.NODE, SelectorKey.GPU_MODEL, SelectorKey.GPU_UUID})
_NUMBERED: Final = frozenset(
    {
        SelectorKey.COMPUTE_CAPABILITY,
        SelectorKey.CUDA_DRIVER_VERSION,
        SelectorKey.GPU_INDEX,
        SelectorKey.NUMA_NODE,
    }
)
_COMPARES: Final = frozenset({SelectorOperator.AT_LEAST, SelectorOperator.AT_MOST})
_ANY_OF: Final = frozenset({SelectorOperator.IN, SelectorOperator.NOT_IN})
_VALUES: Final = {
    SelectorOperator.IN: "one value or more",
    SelectorOperator.NOT_IN: "one value or more",
    SelectorOperator.AT_LEAST: "one value",
    SelectorOperator.AT_MOST: "one value",
    SelectorOperator.EXISTS: "no value",
}

Version = tuple[int, ...]


def version(text: str) -> Version | None:
    """Read `12.4.0` as (12, 4): trailing zeros mean nothing.

    Return None if it is no version; a part of more than 18 digits, which could block the process,
    is none.
    """
    if not _VERSION.fullmatch(text.strip()):
        return None
    numbers = [int(part) for part in text.strip().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def check_selector(selector: Selector, path: str) -> None:
    """Raise RefusedError for a selector that can match nothing."""
    if (selector.key is SelectorKey.LABEL) != bool(selector.label):
        raise _bad("expected the name of a label with key 'label', and with no other", path)
    check_text(selector.label or "", f"{path}.label")
    operator, count = selector.operator, len(selector.values)
    if operator in _COMPARES and selector.key in _NAMES:
        raise _bad(f"expected 'in' or 'not_in' for {selector.key}, got {operator.value!r}", path)
    if not (count > 0 if operator in _ANY_OF else count == (operator in _COMPARES)):
        raise _bad(
            f"expected {_VALUES[operator]} for {operator.value!r}, got {count}", f"{path}.values"
        )
    for place, value in enumerate(selector.values):
        _check_value(selector, value, f"{path}.values[{place}]")


def _check_value(selector: Selector, value: str, path: str) -> None:
    check_text(value, path)
    if selector.key is not SelectorKey.LABEL:  # whose value may be empty
        _check_something(value, path)
    is_number = selector.operator in _COMPARES or selector.key in _NUMBERED
    if is_number and version(value) is None:
        raise _bad(f"expected a number or a version such as 9.0, got {value!r}", path)


def check_text(text: str, path: str) -> None:
    """Postgres stores every character but this one."""
    if "\x00" in text:
        raise _bad("expected text without NUL", path)


def check_texts(values: Iterable[str], path: str) -> None:
    for place, value in enumerate(values):
        check_text(value, f"{path}[{place}]")
        _check_something(value, f"{path}[{place}]")


def _check_something(value: str, path: str) -> None:
    if not value.strip():
        raise _bad(f"expected something to match, got {value!r}", path)


def _bad(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
