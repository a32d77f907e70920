"""Parameters of an engine that do not go together, in words.

What an engine refuses at its start costs an experiment each time, so it is left out before; what it
takes without any effect is said. What is not known to fail is let through.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple


class Conflict(NamedTuple):
    """Why a parameter, by its hyphenated name, does not go with the others. Not `is_fatal`: the
    engine starts all the same.
    """

    flag: str
    reason: str
    is_fatal: bool = True


# Parameters by hyphenated name, without those that are None.
FindConflicts = Callable[[Mapping[str, Any]], Iterator[Conflict]]


def read_object(value: Any) -> dict[str, Any]:
    """Return an object that may be written as text; empty for what is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def whole_number(value: Any) -> int | None:
    """Return a number that may be written as text; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() else None


def is_on(parameters: Mapping[str, Any], name: str) -> bool:
    return str(parameters.get(name, False)).lower() == "true"


def find_unused(parameters: Mapping[str, Any], names: str, need: str) -> Iterator[Conflict]:
    """Yield those of `names`, separated by white space, that are given and do nothing without
    `need`.
    """
    for name in names.split():
        if name in parameters:
            yield Conflict(name, f"has no effect without {need}", is_fatal=False)
