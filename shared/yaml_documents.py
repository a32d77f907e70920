"""YAML as JSON: what people write with less punctuation, and nothing that JSON cannot hold."""

import json
import re
from typing import Any, Final

import yaml

MAX_BYTES: Final = 64 << 10  # it takes many times as long to read as JSON
DEEPEST: Final = 64
_TAG: Final = "tag:yaml.org,2002:"


class InvalidYamlError(ValueError):
    """`line` and `column` are counted from 1; 0 where it has no place."""

    def __init__(self, what: str, mark: Any = None) -> None:
        self.what = what
        self.line: int = mark.line + 1 if mark is not None else 0
        self.column: int = mark.column + 1 if mark is not None else 0
        place = f"line {self.line}, column {self.column}: " if mark is not None else ""
        super().__init__(place + what)


class _CoreLoader(yaml.CSafeLoader):  # type: ignore[misc]  # it has no types
    """Scalars as YAML 1.2 reads them, where `no`, `on` and `12:30` are texts and `010` is ten."""

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  # filled below, in place of those of 1.1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise InvalidYamlError(f"the key {key.value} is there twice", key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep)

    def whole_number(self, node: Any) -> int:
        return int(node.value, 0 if node.value[:2] in {"0x", "0o"} else 10)

    def number(self, node: Any) -> float:
        return float(node.value)


for _name, _form, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_form})$"), list(_first))
_CoreLoader.add_constructor(_TAG + "int", _CoreLoader.whole_number)
_CoreLoader.add_constructor(_TAG + "float", _CoreLoader.number)


def json_of_yaml(document: bytes) -> bytes:
    """The same data. Raises InvalidYamlError."""
    if len(document) > MAX_BYTES:
        raise InvalidYamlError(
            f"expected at most {MAX_BYTES} bytes of YAML, found {len(document)}:"
            " as JSON it may be larger"
        )
    try:
        text = document.decode()
        _check_events(text)
        loaded = yaml.load(text, _CoreLoader)  # noqa: S506  # a safe one
        return json.dumps(loaded, allow_nan=False).encode()
    except yaml.MarkedYAMLError as error:
        what = error.problem or error.context or "unreadable"
        raise InvalidYamlError(f"this is not YAML: {what}", error.problem_mark) from error
    except UnicodeDecodeError as error:
        raise InvalidYamlError("this is not UTF-8") from error
    except (yaml.YAMLError, TypeError, ValueError) as error:
        if isinstance(error, InvalidYamlError):
            raise
        raise InvalidYamlError(f"JSON cannot say this: {error}") from error


def _check_events(text: str) -> None:
    """Before anything is built: a few bytes of aliases may stand for any number of values."""
    depth = documents = 0
    for event in yaml.parse(text, _CoreLoader):
        match event:
            case yaml.AliasEvent():
                raise InvalidYamlError(
                    "aliases are not taken: write it out once more", event.start_mark
                )
            case yaml.DocumentStartEvent():
                documents += 1
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
        if depth > DEEPEST or documents > 1:
            expected = f"at most {DEEPEST} levels" if depth > DEEPEST else "one document"
            raise InvalidYamlError(f"expected {expected}, found more", event.start_mark)
