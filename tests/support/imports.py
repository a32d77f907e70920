"""What our files import, read from their text: nothing is run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PACKAGES: Final = ("services", "shared", "schemas", "tests")


@cache
def imports_of(file: Path) -> frozenset[Path]:
    """Return the files of our packages that a file of ours imports, wherever in it."""
    found = (_file_of(name) for name in imported_names(ROOT / file))
    return frozenset(each for each in found if each is not None and each != file)


def imported_names(source: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and what it imports from them, which may be modules
    as well.
    """
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _file_of(name: str) -> Path | None:
    """Return where a module of ours is; None for others, and for what is none."""
    if name.partition(".")[0] not in PACKAGES:
        return None
    path = Path(*name.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if (ROOT / file).is_file()), None)
