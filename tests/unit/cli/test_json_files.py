"""Where in a file that a person wrote the mistake is."""

import io
from typing import BinaryIO

import pytest

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed
from services.cli.json_files import read_json


def file_of(content: bytes, name: str = "task.json") -> BinaryIO:
    file = io.BytesIO(content)
    file.name = name
    return file


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(
            b'{\n  "a": 1,\n  "b": troo\n}',
            "task.json, line 3, column 8: this is not JSON: Expecting value",
            id="a misspelt word",
        ),
        pytest.param(
            '{"ä": 1 // why\n}'.encode(),
            "task.json, line 1, column 9: this is not JSON: Expecting ',' delimiter",
            id="a comment; columns are characters",
        ),
        pytest.param(
            b'{"a": 1,\n "b": [1\n',
            "task.json, line 3, column 1: this is not JSON: Expecting ',' delimiter",
            id="a missing end",
        ),
        pytest.param(
            b"", "task.json, line 1, column 1: this is not JSON: Expecting value", id="nothing"
        ),
        pytest.param(
            b'{"a":\n"\xff"}', "task.json, line 2, column 2: this is not UTF-8", id="Latin-1"
        ),
        pytest.param(b"[1]", "task.json: Expected `object`, got `array`", id="a list"),
    ],
)
def test_json_mistake_has_file_line_and_column(content: bytes, want: str) -> None:
    with pytest.raises(CommandFailed) as seen:
        read_json(file_of(content))

    assert (seen.value.code, str(seen.value)) == (ErrorCode.BAD_REQUEST, want)


def test_standard_input_is_called_so() -> None:
    with pytest.raises(CommandFailed, match=r"^standard input, line 1, column 2: "):
        read_json(file_of(b"{x", "<stdin>"))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        pytest.param(b"a: 1  # why\n", "task.yaml", id="by its name"),
        pytest.param(b"a: 1\n", "<stdin>", id="without a name"),
        pytest.param(b'{"a": 1}', "task.yml", id="JSON is YAML too"),
    ],
)
def test_yaml_is_handed_on_as_json(content: bytes, name: str) -> None:
    assert read_json(file_of(content, name)) == b'{"a": 1}'


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(
            b"a: 1\na: 2", "task.yaml, line 2, column 1: the key a is there twice", id="1"
        ),
        pytest.param(b"- 1", "task.yaml: Expected `object`, got `array`", id="a list"),
        pytest.param(b"", "task.yaml: Expected `object`, got `null`", id="nothing"),
    ],
)
def test_a_mistake_in_yaml_is_told_by_its_place(content: bytes, want: str) -> None:
    with pytest.raises(CommandFailed) as seen:
        read_json(file_of(content, "task.yaml"))

    assert (seen.value.code, str(seen.value)) == (ErrorCode.BAD_REQUEST, want)


def test_valid_json_is_passed_on_verbatim() -> None:
    assert read_json(file_of(b'{"a": 1}\n')) == b'{"a": 1}\n'


def test_a_fleet_is_told_from_a_task_by_its_name() -> None:
    with pytest.raises(CommandFailed, match=r"a TOML file, .*; a fleet goes to `gpusteward up"):
        read_json(file_of(b"[attributes]\n", "fleet.toml"))
