"""A task file as people write it: its short forms written out, and all of its mistakes at once.

A short form is one value where a list of one is meant, and a model by its id alone.
"""

from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from schemas.errors import ErrorCode
from schemas.task.task_file import ModelSpec, TaskFile
from shared.errors import MOST_MISTAKES, RefusedError
from shared.near_words import did_you_mean
from shared.problems import explain_validation_error

_MAPPING: Any = dict
# What people write into the file that is said elsewhere.
_SAID_ELSEWHERE: Final = {
    "$.namespace": (
        ": it is no part of the file, but of who hands it in: `submit` and `run` take --namespace,"
        " POST /tasks ?namespace="
    )
}
_SCALARS: Final = (str, int, float, bool)


class Form(Struct, frozen=True):
    """The file with its short forms written out, as far as it has them, and what is wrong in it."""

    body: bytes
    mistakes: tuple[RefusedError, ...] = ()


def form_of(body: bytes) -> Form:
    """Return the form of a task file; at most 20 of its mistakes, in the order of the file.

    What cannot be read as JSON stays as it is, for its own error.
    """
    try:
        document = msgspec.json.decode(body)
        msgspec.json.encode(document)  # not every nesting that is read can be written
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Form(body)
    mistakes: list[RefusedError] = []
    longer = _checked(document, TaskFile, "$", mistakes)
    if mistakes or longer == document:
        return Form(body, tuple(mistakes[:MOST_MISTAKES]))
    return Form(msgspec.json.encode(longer))


def _checked(value: Any, type_: Any, path: str, mistakes: list[RefusedError]) -> Any:
    """Return the value with its short forms written out; add what is wrong in it."""
    before = len(mistakes)
    inner = _without_none(type_)
    origin, arguments = get_origin(inner), get_args(inner)
    if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
        value = _checked_struct(value, inner, path, mistakes)
    elif origin is dict and isinstance(value, dict):
        value = dict(_checked_items(value, inner, path, mistakes))
    elif origin is tuple and isinstance(value, list):
        value = [
            _checked(each, arguments[0], f"{path}[{place}]", mistakes)
            for place, each in enumerate(value)
        ]
    if len(mistakes) > before:
        return value
    longer, mistake = _converted(value, type_, path)
    mistakes += [mistake] if mistake is not None else []
    return longer


def _checked_struct(
    value: dict[str, Any], type_: type[Struct], path: str, mistakes: list[RefusedError]
) -> dict[str, Any]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    known = sorted(name for name in fields if not name.startswith("$"))
    longer: dict[str, Any] = {}
    for name, inner in value.items():
        field = fields.get(name)
        if field is None:
            meant = (
                _SAID_ELSEWHERE.get(f"{path}.{name}")
                or did_you_mean(name, known)
                or f"; known: {', '.join(known)}"
            )
            message = f"Object contains unknown field `{name}`{meant}"
            mistakes.append(_refusal(f"{path}.{name}", message))
        else:
            hint = _hints(type_)[field.name]
            longer[name] = _checked(inner, hint, f"{path}.{name}", mistakes)
    for name, field in fields.items():
        is_required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        if is_required and name not in value:
            message = f"Object missing required field `{name}`"
            mistakes.append(_refusal(f"{path}.{name}", message))
    return longer


def _checked_items(
    value: dict[str, Any], type_: Any, path: str, mistakes: list[RefusedError]
) -> Iterator[tuple[str, Any]]:
    key_type, value_type = get_args(type_)
    for key, inner in value.items():
        _, mistake = _converted({key: None}, _MAPPING[key_type, Any], path)
        if mistake is not None:
            mistakes.append(_refusal(path, f"{mistake.message}, got {key!r}"))
        yield key, _checked(inner, value_type, f"{path}.{key}", mistakes)


def _converted(value: Any, type_: Any, path: str) -> tuple[Any, RefusedError | None]:
    """Return the value, or what it is short for, and why it is neither."""
    mistake = _mistake(value, type_, path)
    if mistake is None or not isinstance(value, _SCALARS):
        return value, mistake
    longer = {"id_or_path": value} if _without_none(type_) is ModelSpec else [value]
    return (longer, None) if _mistake(longer, type_, path) is None else (value, mistake)


def _mistake(value: Any, type_: Any, path: str) -> RefusedError | None:
    text = msgspec.json.encode(value)
    try:
        msgspec.json.decode(text, type=type_)
    except msgspec.ValidationError as error:
        place, sentence = explain_validation_error(error, type_, text)
        return _refusal(f"{path}{(place or '$').removeprefix('$')}", sentence)
    return None


def _without_none(type_: Any) -> Any:
    """Return what a field may be beside null and without bounds, where that is one type."""
    while get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    if get_origin(type_) in {Union, UnionType}:
        others = [each for each in get_args(type_) if each is not NoneType]
        return _without_none(others[0]) if len(others) == 1 else type_
    return type_


@cache
def _hints(type_: type[Struct]) -> dict[str, Any]:
    return get_type_hints(type_, include_extras=True)


def _refusal(path: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
