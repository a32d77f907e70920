"""Short forms of a task file: one value where a list of one is meant, a model by its id alone."""

import re
from typing import Any, Final

import msgspec

from schemas.task.task_file import TaskFile
from shared.problems import explain_validation_error

MOST: Final = 200  # short forms of one file
_LIST_EXPECTED: Final = re.compile(r"Expected `[^`]*array[^`]*`, got `(str|int|float|bool)`")
_MODEL_EXPECTED: Final = "Expected `object`, got `str`"
_MODEL: Final = "$.model"


def written_out(body: bytes) -> bytes:
    """Return the task file with its short forms written out, as far as each is the only mistake.

    What is wrong in another way stays as it is, for its own error.
    """
    written: set[str] = set()
    for _ in range(MOST):
        try:
            msgspec.json.decode(body, type=TaskFile)
        except (msgspec.ValidationError, RecursionError) as error:
            if isinstance(error, RecursionError):
                return body
            path, message = explain_validation_error(error, TaskFile, body)
            if path is None or path == "$" or path in written:
                return body
            longer = _longer(body, path, message)
            if longer is None:
                return body
            body = longer
            written.add(path)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return body
        else:
            return body
    return body


def _longer(body: bytes, path: str, message: str) -> bytes | None:
    """Return the file with the value at the path written out, None where it is no short form."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None  # somewhere in it is a number that no float holds, or it is too deep
    *steps, last = path.removeprefix("$.").split(".")
    holder = document
    for step in steps:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or last not in holder:
        return None
    value: Any = holder[last]
    if path == _MODEL and message == _MODEL_EXPECTED:
        holder[last] = {"id_or_path": value}
    elif _LIST_EXPECTED.fullmatch(message):
        holder[last] = [value]
    else:
        return None
    return msgspec.json.encode(document)
