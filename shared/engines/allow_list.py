"""A list of what may be given to one version of an engine, and the forms of its values.

On a list is what chooses how to compute, schedule, cache or log, by number, switch or word. Left
out, and so the operator's word, is what imports code, opens a path, an address or a port, or has
the engine's own API do more than serve the model.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from schemas.executor.engine_rules import EngineParameter, ParameterKind
from shared.engines.values import bad_parameter, fitting_value

_NUMBER: Final = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?[kKmMgGtT]?"
# Neither `/` nor a dot between letters: no path, no address, no name of a module.
_PLAIN: Final = re.compile(rf"({_NUMBER}|[A-Za-z0-9_+:=%-]+)([,;]({_NUMBER}|[A-Za-z0-9_+:=%-]+))*")
_HUB_PART: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HUB_ID: Final = re.compile(rf"{_HUB_PART}(/{_HUB_PART})?")
_ADAPTER: Final = re.compile(rf"{_HUB_PART}={_HUB_PART}/{_HUB_PART}")


class Text(Enum):
    """What a text may be; numbers and switches are plain too."""

    PLAIN = "a number, a word without '/', or a list of them"
    HUB_ID = "a model's id on a hub, such as 'org/model'"
    ADAPTERS = "adapters of a hub, such as 'sql=org/adapter', separated by blanks"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number between the two, both included."""

    low: float
    high: float


# An object is given by the forms of its keys, a choice by its words.
Form = ParameterKind | Text | Bounds | tuple[str, ...] | Mapping[str, "Form"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """`version` is the newest that it was read from; flags of older ones that still run are on it
    too, and mean the same there.
    """

    engine: str
    version: str
    forms: Mapping[str, Form]

    @property
    def name(self) -> str:
        return f"{self.engine}-{self.version}"

    def form_of(self, flag: str) -> Form | None:
        """The form of a flag's value, None for one that is not on the list."""
        if (form := self.forms.get(flag)) is not None:
            return form
        positive = flag.removeprefix("no-")
        return ParameterKind.SWITCH if self.forms.get(positive) is ParameterKind.SWITCH else None


SHARE: Final = Bounds(0.0, 1.0)


def with_form(form: Form, flags: str) -> Iterator[tuple[str, Form]]:
    """The flags, separated by white space, with their common form."""
    return ((flag, form) for flag in flags.split())


def one_of(words: str) -> Form:
    """A choice of the words, separated by white space."""
    return tuple(words.split())


def fitting(form: Form, place: str, value: Any) -> Any:
    """The value as the engine gets it; numbers, switches and objects may come as text.

    Raises RefusedError naming the place, which is a parameter and the keys below it.
    """
    if isinstance(form, ParameterKind):
        read = fitting_value(EngineParameter(name=place, kind=form), place, value)
        return value if form is ParameterKind.NUMBER else read  # 8192 is not to become 8192.0
    if isinstance(form, Bounds):
        bounded = EngineParameter(
            name=place, kind=ParameterKind.NUMBER, minimum=form.low, maximum=form.high
        )
        fitting_value(bounded, place, value)
        return value
    if isinstance(form, tuple):
        choice = EngineParameter(name=place, kind=ParameterKind.CHOICE, choices=form)
        return fitting_value(choice, place, value)
    if isinstance(form, Mapping):
        return _object(form, place, value)
    if form is Text.ADAPTERS:
        return _adapters(place, value)
    texts = value if form is Text.PLAIN and isinstance(value, list | tuple) else [value]
    pattern = _PLAIN if form is Text.PLAIN else _HUB_ID
    for text in texts:
        is_scalar = isinstance(text, bool | int | float) and form is Text.PLAIN
        if not is_scalar and not (isinstance(text, str) and pattern.fullmatch(text)):
            raise bad_parameter(place, f"expected {form.value}, got {text!r}")
    return value


def _adapters(place: str, value: Any) -> list[str]:
    """Return one text for each adapter: no path, so that none of the host's files is opened."""
    texts = list(value) if isinstance(value, list | tuple) else str(value).split()
    if not texts or not all(isinstance(text, str) and _ADAPTER.fullmatch(text) for text in texts):
        raise bad_parameter(place, f"expected {Text.ADAPTERS.value}, got {value!r}")
    return texts


def _object(keys: Mapping[str, Form], place: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise bad_parameter(place, f"expected an object of {', '.join(keys)}")
    for key in value:
        if key not in keys:
            message = f"a task may not set {key!r} in it; it may set {', '.join(keys)}"
            raise bad_parameter(f"{place}.{key}", message)
    return {
        key: item if item is None else fitting(keys[key], f"{place}.{key}", item)
        for key, item in value.items()
    }
