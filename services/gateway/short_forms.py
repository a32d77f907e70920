"""Short forms of a task file: one value where a list of one is meant, a model by its id alone."""

import re
from typing import Final, NamedTuple

import msgspec

from schemas.task.task_file import TaskFile
from shared.problems import explain_validation_error

MOST: Final = 200  # fields with short forms in one file
_LIST_EXPECTED: Final = re.compile(r"Expected `[^`]*array[^`]*`, got `(str|int|float|bool)`")
_MODEL_EXPECTED: Final = "Expected `object`, got `str`"
_MODEL: Final = "$.model"
_ANY_KEY: Final = "[...]"


class WrittenOut(NamedTuple):
    """A task file without short forms, and the paths of those that it had."""

    body: bytes
    paths: frozenset[str]


def written_out(body: bytes) -> WrittenOut:
    """Return the task file with its short forms written out, as far as each is the only mistake.

    What is wrong in another way stays as it is, for its own error.
    """
    paths: set[str] = set()
    for _ in range(MOST):
        try:
            msgspec.json.decode(body, type=TaskFile)
        except msgspec.ValidationError as error:
            path, message = explain_validation_error(error, TaskFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            break
        else:
            break
        longer = _longer(body, path, message) if path is not None else None
        if longer is None or longer.paths <= paths:
            break
        body = longer.body
        paths |= longer.paths
    return WrittenOut(body, frozenset(paths))


def _longer(body: bytes, path: str, message: str) -> WrittenOut | None:
    """Return the file with the value at the path written out, None where it is no short form.

    Values of a mapping are all of one type, so all of them are written out together.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None  # somewhere in it is a number that no float holds, or it is too deep
    is_of_mapping = path.endswith(_ANY_KEY)
    *steps, last = path.removesuffix(_ANY_KEY).removeprefix("$.").split(".")
    holder = document
    for step in [*steps, last] if is_of_mapping else steps:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        return None
    names = [
        name
        for name in (holder if is_of_mapping else [last])
        if isinstance(holder.get(name), str | int | float)
    ]
    if path == _MODEL and message == _MODEL_EXPECTED:
        holder[last] = {"id_or_path": holder[last]}
    elif _LIST_EXPECTED.fullmatch(message):
        holder.update({name: [holder[name]] for name in names})
    else:
        return None
    before = path.removesuffix(_ANY_KEY) if is_of_mapping else path.rpartition(".")[0]
    return WrittenOut(msgspec.json.encode(document), frozenset(f"{before}.{n}" for n in names))
