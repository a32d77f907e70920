"""Importing a library without what it imports just in case, and can do without."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def missing(*names: str) -> Iterator[None]:
    """Have the import of these modules fail meanwhile; afterwards they can be imported as ever."""
    hidden = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # what makes it fail
    try:
        yield
    finally:
        for name, module in hidden.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def import_without(library: str, optional: str) -> None:
    """Import `library` without `optional`, unless that is there already."""
    if optional not in sys.modules:
        with missing(optional):
            importlib.import_module(library)
