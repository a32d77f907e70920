"""JSON or YAML that a person wrote, and where in it a mistake is."""

import json
from typing import Any, BinaryIO

import msgspec

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed


def read_json(file: BinaryIO) -> bytes:
    """An object as JSON. Raises CommandFailed with file, line and column of a mistake.

    YAML is what a file's name says, and what comes without a name and does not begin as an object.
    """
    document = file.read()
    is_stdin = file.name == "<stdin>"
    name = "standard input" if is_stdin else file.name
    if name.endswith(".toml"):
        raise CommandFailed(
            ErrorCode.BAD_REQUEST,
            f"{name}: a TOML file, and a task is JSON or YAML; a fleet goes to"
            f" `gpusteward up --fleet {name}`",
        )
    if name.endswith((".yaml", ".yml")) or (is_stdin and document.strip()[:1] not in {b"", b"{"}):
        document = _json_of(document, name)
    try:
        # Unlike msgspec's, this parser's position is where a person looks for the mistake.
        json.loads(document.decode())
        msgspec.json.decode(document, type=dict[str, Any])
    except UnicodeDecodeError as error:
        text_before = document[: error.start].decode()
        line, column = text_before.count("\n") + 1, len(text_before.rpartition("\n")[2]) + 1
        where, what = f", line {line}, column {column}", "this is not UTF-8"
    except json.JSONDecodeError as error:
        where, what = (
            f", line {error.lineno}, column {error.colno}",
            f"this is not JSON: {error.msg}",
        )
    except msgspec.DecodeError as error:
        where, what = "", str(error)
    else:
        return document
    raise CommandFailed(ErrorCode.BAD_REQUEST, f"{name}{where}: {what}")


def _json_of(document: bytes, name: str) -> bytes:
    from shared.yaml_documents import InvalidYamlError, json_of_yaml  # most files are JSON

    try:
        return json_of_yaml(document)
    except InvalidYamlError as error:
        where = f", line {error.line}, column {error.column}" if error.line else ""
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{name}{where}: {error.what}") from error
