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
from shared.errors import MAX_MISTAKES, RefusedError
from shared.near_words import did_you_mean
from shared.problems import explain_validation_error
from shared.task_files.engines import with_engines_listed
from shared.task_files.older_names import with_todays_names

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
    longer = document
    if isinstance(document, dict):
        longer = with_engines_listed(with_todays_names(document))
    longer = _check(longer, TaskFile, "$", mistakes)
    if mistakes or longer == document:
        return Form(body, tuple(mistakes[:MAX_MISTAKES]))
    return Form(msgspec.json.encode(longer))


def _check(value: Any, type_: Any, path: str, mistakes: list[RefusedError]) -> Any:
    """Return the value with its short forms written out; add what is wrong in it."""
    mistakes_before = len(mistakes)
    inner = _without_none(type_)
    origin, arguments = get_origin(inner), get_args(inner)
    if isinstance(inner, type) and issubclass(inner, Struct) and isinstance(value, dict):
        value = _check_struct(value, inner, path, mistakes)
    elif origin is dict and isinstance(value, dict):
        value = dict(_check_items(value, inner, path, mistakes))
    elif origin is tuple and isinstance(value, list):
        value = [
            _check(item, arguments[0], f"{path}[{place}]", mistakes)
            for place, item in enumerate(value)
        ]
    if len(mistakes) > mistakes_before:
        return value
    longer, mistake = _convert(value, type_, path)
    mistakes += [mistake] if mistake is not None else []
    return longer


def _check_struct(
    value: dict[str, Any], type_: type[Struct], path: str, mistakes: list[RefusedError]
) -> dict[str, Any]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    field_names = sorted(name for name in fields if not name.startswith("$"))
    longer: dict[str, Any] = {}
    for name, inner in value.items():
        field = fields.get(name)
        if field is None:
            suggestion = (
                _SAID_ELSEWHERE.get(f"{path}.{name}")
                or did_you_mean(name, field_names)
                or f"; known: {', '.join(field_names)}"
            )
            message = f"Object contains unknown field `{name}`{suggestion}"
            mistakes.append(_refusal(f"{path}.{name}", message))
        else:
            hint = _hints(type_)[field.name]
            longer[name] = _check(inner, hint, f"{path}.{name}", mistakes)
    for name, field in fields.items():
        is_required = field.default is NODEFAULT and field.default_factory is NODEFAULT
        # A task file has one engine by name, or `engines`.
        is_required |= (type_, name) == (TaskFile, "base_runtime") and "engines" not in value
        if is_required and name not in value:
            message = f"Object missing required field `{name}`"
            mistakes.append(_refusal(f"{path}.{name}", message))
    return longer


def _check_items(
    value: dict[str, Any], type_: Any, path: str, mistakes: list[RefusedError]
) -> Iterator[tuple[str, Any]]:
    key_type, value_type = get_args(type_)
    for key, inner in value.items():
        _, mistake = _convert({key: None}, _MAPPING[key_type, Any], path)
        if mistake is not None:
            mistakes.append(_refusal(path, f"{mistake.message}, got {key!r}"))
        yield key, _check(inner, value_type, f"{path}.{key}", mistakes)


def _convert(value: Any, type_: Any, path: str) -> tuple[Any, RefusedError | None]:
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
        alternatives = [
            alternative for alternative in get_args(type_) if alternative is not NoneType
        ]
        return _without_none(alternatives[0]) if len(alternatives) == 1 else type_
    return type_


@cache
def _hints(type_: type[Struct]) -> dict[str, Any]:
    return get_type_hints(type_, include_extras=True)


def _refusal(path: str, message: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
