"""JSON that a person wrote, and where in it a mistake is."""

import json
from typing import Any, BinaryIO

import msgspec

from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed


def read_json(file: BinaryIO) -> bytes:
    """An object as it is written. Raises CommandFailed with file, line and column of a mistake."""
    document = file.read()
    name = "standard input" if file.name == "<stdin>" else file.name
    try:
        # Unlike msgspec's, this parser's position is where a person looks for the mistake.
        json.loads(document.decode())
        msgspec.json.decode(document, type=dict[str, Any])
    except UnicodeDecodeError as error:
        before = document[: error.start].decode()
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
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
