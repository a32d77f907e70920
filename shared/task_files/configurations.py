"""Whether the rows of a task's `configurations` are a list of configurations."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.gpu.sizing import degree_named, hyphenate


def meaning_of(name: str) -> str:
    """Return what a parameter's name means, which has many spellings."""
    return degree_named(name) or hyphenate(name)


def check_configurations(rows: Sequence[Mapping[str, Any]], parameters: Collection[str]) -> None:
    """Raise RefusedError, by path, for rows that do not give the same parameters, and for one that
    is among the `parameters` too.
    """
    first = {meaning_of(name): name for name in rows[0]} if rows else {}
    crossed = {meaning_of(name): name for name in parameters}
    for place, row in enumerate(rows):
        meanings = {meaning_of(name): name for name in row}
        path = f"$.configurations[{place}]"
        if len(meanings) < len(row):
            twice = next(name for name in row if meanings[meaning_of(name)] != name)
            raise _refusal(f"{twice!r} is given twice, in two spellings", f"{path}.{twice}")
        if meanings.keys() != first.keys():
            raise _refusal(_difference(place + 1, meanings, first), path)
    for meaning, name in first.items():
        if meaning in crossed:
            raise _refusal(
                f"expected {name!r} either in configurations or in parameters"
                f" ({crossed[meaning]!r}), found it in both",
                f"$.configurations[0].{name}",
            )


def _difference(number: int, settings: Mapping[str, str], first: Mapping[str, str]) -> str:
    missing_names = [name for meaning, name in first.items() if meaning not in settings]
    added = [name for meaning, name in settings.items() if meaning not in first]
    parts = [
        f"{verb} {', '.join(names)}"
        for verb, names in (("lacks", missing_names), ("adds", added))
        if names
    ]
    return (
        f"expected the same parameters in every row of configurations, {', '.join(first.values())}:"
        f" row {number} {' and '.join(parts)}"
    )


def _refusal(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
