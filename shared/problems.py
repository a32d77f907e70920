"""What was wrong with an input, so that a person can mend it."""

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from shared.near_words import did_you_mean

_PLACE: Final = re.compile(r" - at (?:`key` in )?`(?P<path>\$.*)`$", re.DOTALL)
_NAMED_FIELD: Final = re.compile(r"(?:missing required|contains unknown) field `(?P<name>[^`]*)`")
_PATTERN: Final = re.compile(r"Expected `str` matching regex (?P<pattern>.*)", re.DOTALL)
_CHOICE: Final = re.compile(r"Invalid enum value (?P<found>.*)", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")
_ANY_KEY: Final = "[...]"
_PLAIN: Final = {
    "Invalid UUID": "expected a UUID",
    "Invalid RFC3339 encoded datetime": "expected a time such as 2026-01-31T12:00:00Z",
    "Expected `datetime` with a timezone component": (
        "expected a time with its zone, such as 2026-01-31T12:00:00Z"
    ),
}
_KEYS_TRIED: Final = 1000
_MAX_SHOWN: Final = 60  # characters of a value


def explain_validation_error(
    error: msgspec.DecodeError, type_: Any, text_decoded: bytes | str | None = None
) -> tuple[str | None, str]:
    """The path of the offending field and a sentence with what was expected there.

    `type_` is what was decoded into. The path is None where the input as a whole cannot be read; a
    missing or unknown field is named by its own path, and so is one at whose place in its struct a
    `__post_init__` ends its text, as in "- at `$.url`". A value of a mapping is named by its key if
    the JSON is given as `text_decoded`, else as `[...]`.
    """
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return None, text
    place = _PLACE.search(text)
    inner_first = place["path"].split("` - at `") if place else []
    path = "$" + "".join(part.removeprefix("$") for part in reversed(inner_first))
    sentence = text[: place.start()] if place else text
    is_key = place is not None and "`key` in" in place.group()
    options = _keys_at(type_, path) if is_key else _types_at(type_, path)
    sentence = in_words(sentence, choices=_choices(options), form=_form(options))
    if is_key:
        sentence += ", as a key"
    if field := _NAMED_FIELD.search(sentence):
        field_names = _fields_at(type_, path) if "unknown" in sentence else []
        sentence += did_you_mean(field["name"], field_names) + _list_text("known", field_names)
        path = f"{path}.{field['name']}"
    if _ANY_KEY in path and text_decoded is not None:
        path = _with_key(path, text, type_, text_decoded)
    is_hidden = any(_is_hidden(option) for option in options)
    if not field and not is_key and not is_hidden and text_decoded is not None:
        sentence += _value_text(path, sentence, text_decoded)
    return path, sentence


def _value_text(path: str, sentence: str, text_decoded: bytes | str) -> str:
    """Return `, got '2h'`, the scalar at the path; nothing where the sentence has it already."""
    if "; found " in sentence:
        return ""
    try:
        value = msgspec.json.decode(text_decoded)
        for step in _STEP.finditer(path):
            value = value[step["name"] or int(step["index"])]
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, ValueError):
        return ""
    if isinstance(value, dict | list) and value:
        return ""
    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return f" {text}" if ", got `" in sentence else f", got {text}"


def in_words(sentence: str, *, choices: Sequence[str] = (), form: str | None = None) -> str:
    """A decoder's sentence as people read it: with the choices there are, without a pattern.

    `form` describes what a pattern matches.
    """
    if choice := _CHOICE.fullmatch(sentence):
        suggestion = did_you_mean(choice["found"].strip("'"), choices)
        return f"expected one of: {', '.join(choices)}; found {choice['found']}{suggestion}"
    if _PATTERN.fullmatch(sentence):
        return f"expected {form or 'a text of another form'}"
    return _PLAIN.get(sentence, sentence)


def choices_of(type_: Any) -> list[str]:
    """The values that an enumeration allows, as they are written; none if it is another type."""
    return _choices(_options(inspect.type_info(type_)))


def _with_key(path: str, text: str, type_: Any, text_decoded: bytes | str) -> str:
    """The path with the first `[...]` replaced by the key whose value gives this error."""
    try:
        data = msgspec.json.decode(text_decoded)
    except (msgspec.DecodeError, RecursionError):  # malformed behind the offending field
        return path
    head, _, tail = path.partition(_ANY_KEY)
    steps = [step["name"] or int(step["index"]) for step in _STEP.finditer(head)]
    mapping = data
    for step in steps:
        mapping = mapping[step]
    for key in list(mapping)[:_KEYS_TRIED]:
        alone = {key: mapping[key]}
        try:
            msgspec.convert(_replace(data, steps, alone), type_)
        except msgspec.ValidationError as error:
            if str(error) == text:
                return f"{head}.{key}{tail}"
    return path


def _replace(data: Any, steps: list[Any], value: Any) -> Any:
    """A copy of `data` with another value at the end of `steps`."""
    if not steps:
        return value
    copy = list(data) if isinstance(data, list) else dict(data)
    copy[steps[0]] = _replace(copy[steps[0]], steps[1:], value)
    return copy


def _list_text(heading: str, names: list[str]) -> str:
    return f"; {heading}: {', '.join(names)}" if names else ""


def _fields_at(type_: Any, path: str) -> list[str]:
    return sorted(
        field.encode_name
        for struct in _types_at(type_, path)
        if isinstance(struct, inspect.StructType)
        for field in struct.fields
        if not field.encode_name.startswith("$")  # `$schema`, which is for editors
    )


def _choices(options: Iterable[inspect.Type]) -> list[str]:
    choices: list[str] = []
    for option in options:
        match option:
            case inspect.EnumType(cls=cls) if issubclass(cls, enum.Enum):
                choices += [str(member.value) for member in cls]
            case inspect.LiteralType(values=values):
                choices += [str(value) for value in values]
    return choices


def _form(options: Iterable[inspect.Type]) -> str | None:
    """A text's description."""
    described = (
        metadata.extra_json_schema for metadata in options if isinstance(metadata, inspect.Metadata)
    )
    descriptions = (schema.get("description") for schema in described if schema)
    return next((text for text in descriptions if text), None)


def _is_hidden(option: inspect.Type) -> bool:
    """Return whether a value may be in no sentence: JSON Schema's writeOnly, as of a secret."""
    schema = option.extra_json_schema if isinstance(option, inspect.Metadata) else None
    return bool(schema and schema.get("writeOnly"))


def _keys_at(type_: Any, path: str) -> list[inspect.Type]:
    """Return every type that a key of the mapping at a path may have."""
    return [
        option
        for holder in _types_at(type_, path)
        if isinstance(holder, inspect.DictType)
        for option in _options(holder.key_type)
    ]


def _types_at(type_: Any, path: str) -> list[inspect.Type]:
    """Return every type that may stand at a path, with unions split."""
    types = _options(inspect.type_info(type_))
    for step in _STEP.finditer(path):
        types = [
            option
            for holder in types
            for inner in _inner(holder, step["name"])
            for option in _options(inner)
        ]
    return types


def _options(type_: inspect.Type) -> list[inspect.Type]:
    """Return the alternatives of a type; only texts keep their description."""
    if isinstance(type_, inspect.Metadata) and not isinstance(type_.type, inspect.StrType):
        return _options(type_.type)
    if isinstance(type_, inspect.UnionType):
        return [option for member in type_.types for option in _options(member)]
    return [type_]


def _inner(holder: inspect.Type, name: str | None) -> list[inspect.Type]:
    """Return the types of a field of this name, or of the items of a collection."""
    match holder:
        case inspect.StructType(fields=fields):
            return [field.type for field in fields if field.encode_name == name]
        case inspect.DictType(value_type=value_type):
            return [value_type]
        case inspect.TupleType(item_types=item_types):
            return list(item_types)
        case inspect.CollectionType(item_type=item_type):
            return [item_type]
    return []
