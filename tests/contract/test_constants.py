"""A constant of the field, a name of an API, a limit that two sides share, is written once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

# What several modules say alike by chance: each may change without the others.
OWN_TO_EACH: Final = frozenset(
    {
        "BATCH",  # rows of one step
        "KEY_VARIABLE",  # of the environment of each benchmark tool
        "LINE_CHARACTERS",  # of a tool's last words, and of an engine's
        "MAX_AT_ONCE",
        "PAGE",
        "PAUSE_RATIO",
        "PROC",  # the guard imports nothing for it
        "SPARE_ENTRIES",
        "UNKNOWN",  # what a table shows for it
    }
)


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module's public constants with their values; intervals are each module's own."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if is_shared(name) and is_plain(value):
                yield name, ast.unparse(value)


def is_shared(name: str) -> bool:
    is_constant = name.isupper() and len(name) > 1 and not name.startswith("_")
    return is_constant and not name.endswith("_SECONDS") and name not in OWN_TO_EACH


def is_plain(value: ast.expr) -> bool:
    """Return True for a number, a text, or a call of one of these, such as a path."""
    if isinstance(value, ast.Call):
        return bool(value.args) and all(map(is_plain, value.args))
    return isinstance(value, ast.Constant)


def test_each_constant_is_written_once() -> None:
    modules: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for package in ("schemas", "services", "shared"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for constant in constants(path):
                modules[constant].append(str(path.relative_to(ROOT)))

    assert {constant: where for constant, where in modules.items() if len(where) > 1} == {}
