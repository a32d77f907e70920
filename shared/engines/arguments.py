"""Parameters as the arguments of a command, for engines that take whatever is on their list."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from shared.engines.values import bad_parameter


def arguments_of(
    spelling: str,
    value: object,
    *,
    has_negative_switches: bool = True,
    plain_switches: Collection[str] = (),
    has_underscores: bool = False,
) -> list[str]:
    """A switch is bare where it is true, and `--no-` where it is false and its engine has the form.
    `has_underscores`: the engine's flags are spelled with these.

    Raises RefusedError for a list with a value that looks like a flag.
    """
    flag = spelling.replace("-", "_") if has_underscores else spelling.replace("_", "-")
    if isinstance(value, bool):
        is_plain = not has_negative_switches or flag in plain_switches
        return _switch(flag, is_on=value, is_plain=is_plain)
    if isinstance(value, dict):
        return [f"--{flag}", json.dumps(value, separators=(",", ":"))]
    if isinstance(value, (list, tuple)):
        return [f"--{flag}", *_several(spelling, value)] if value else []
    text = str(value)
    # In one element with its flag, so that a value which looks like a flag stays a value.
    return [f"--{flag}={text}"] if text.startswith("-") else [f"--{flag}", text]


def _switch(flag: str, *, is_on: bool, is_plain: bool) -> list[str]:
    if is_on:
        return [f"--{flag}"]
    if is_plain:
        return []
    return [f"--{flag.removeprefix('no-')}" if flag.startswith("no-") else f"--no-{flag}"]


def _several(spelling: str, values: Sequence[Any]) -> list[str]:
    texts = [json.dumps(value) if isinstance(value, dict) else str(value) for value in values]
    if any(text.startswith("-") for text in texts):
        raise bad_parameter(spelling, f"expected values that do not begin with '-', got {texts!r}")
    return texts
