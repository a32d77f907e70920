"""Tables of many small checks: to pytest each entry of its own costs milliseconds, in collecting,
running and reporting it.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar

import pytest

Entry = TypeVar("Entry")
Test = Callable[..., None]

# pytest's own are no Exception. An entry that is skipped would skip those after it.
FAILURES: Final = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def for_each(
    parameter: str, entries: Iterable[Entry], *, name: Callable[[Entry], object] = str
) -> Callable[[Test], Test]:
    """The test is one for the whole table: it is called with every entry as `parameter`, and fails
    with every one that does, named, in an exception group.
    """
    table = list(entries)
    assert table, f"expected entries for {parameter}"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def of_every_entry(**others: Any) -> None:
            errors: list[BaseException] = []
            for entry in table:
                try:
                    test(**{parameter: entry}, **others)
                except FAILURES as error:
                    error.add_note(f"{parameter}: {name(entry)}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(table)} entries", errors)

        own = inspect.signature(test)
        others = [each for each in own.parameters.values() if each.name != parameter]
        # pytest asks it for the fixtures.
        setattr(of_every_entry, "__signature__", own.replace(parameters=others))  # noqa: B010  # mypy knows no such attribute
        return of_every_entry

    return decorate
