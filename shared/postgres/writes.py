"""Writes of one transaction that are sent together: one way to the server, one statement to run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from shared.postgres.database import Connection, Row

_PARAMETER: Final = re.compile(r"\$(\d+)")


@dataclass(slots=True)
class Writes:
    """Writes that wait for the last of them.

    None of them sees another, so no two may change the same row. The same statement again adds to
    its columns, which all its arguments have to be.
    """

    _columns: dict[str, list[Any]] = field(default_factory=dict)

    async def execute(self, query: str, *args: Any) -> str:
        """Add a write; it has no answer yet."""
        if query in self._columns:
            for column, more in zip(self._columns[query], args, strict=True):
                column += more
        else:
            self._columns[query] = [list(a) if isinstance(a, list) else a for a in args]
        return ""

    async def fetch_last(self, connection: Connection, query: str, *args: Any) -> Sequence[Row]:
        """Run all of them with one more, and return the rows of that one."""
        statement = _join(tuple(self._columns), query)
        columns = [column for columns in self._columns.values() for column in columns]
        self._columns.clear()
        return await connection.fetch(statement, *columns, *args)

    async def send(self, connection: Connection) -> None:
        """Run all of them."""
        if self._columns:
            await self.fetch_last(connection, "SELECT")


@lru_cache(maxsize=256)
def _join(writes: tuple[str, ...], last: str) -> str:
    """Join several statements to one, whose parameters follow each other."""
    parts: list[str] = []
    number_of_parameters = 0
    for statement in (*writes, last):
        pieces = _PARAMETER.split(statement)
        numbers = [int(number) for number in pieces[1::2]]
        pieces[1::2] = [f"${number + number_of_parameters}" for number in numbers]
        parts.append("".join(pieces))
        number_of_parameters += max(numbers, default=0)
    common_tables = ", ".join(f"write_{place} AS ({part})" for place, part in enumerate(parts[:-1]))
    return f"WITH {common_tables} {parts[-1]}" if common_tables else parts[-1]
