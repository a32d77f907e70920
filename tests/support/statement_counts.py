"""Counts the statements that a service sends to Postgres, by the handler that sent them."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import pytest

from shared.postgres.database import Connection, Database

_STATEMENTS = frozenset({"execute", "executemany", "fetch", "fetchrow", "fetchval"})


class _CountingConnection:
    """A connection that notes each statement before it runs it; BEGIN and COMMIT do not count."""

    def __init__(self, connection: Connection, statements: list[str]) -> None:
        self._connection = connection
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        if name not in _STATEMENTS:
            return method

        def run(statement: str, *arguments: object) -> Any:
            self._statements.append(" ".join(statement.split()))
            return method(statement, *arguments)

        return run


class StatementCounts:
    """The statements of every call of the watched methods, by the method's name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: dict[str, list[list[str]]] = defaultdict(list)
        self._monkeypatch = monkeypatch
        self._current: ContextVar[list[str] | None] = ContextVar("statements", default=None)
        original = Database.statements

        @asynccontextmanager
        async def statements(database: Database) -> AsyncIterator[Connection]:
            async with original(database) as connection:
                current = self._current.get()
                counting: Any = connection
                if current is not None:
                    counting = _CountingConnection(connection, current)
                yield counting

        monkeypatch.setattr(Database, "statements", statements)

    def watch(self, owner: type, *methods: str) -> None:
        """Count the statements of these methods of a class, each call for itself."""
        for name in methods:
            self._monkeypatch.setattr(owner, name, self._watched(getattr(owner, name), name))

    def _watched(self, method: Any, name: str) -> Any:
        @wraps(method)
        async def run(*arguments: object, **options: object) -> Any:
            with self._counting(name):
                return await method(*arguments, **options)

        return run

    @contextmanager
    def _counting(self, name: str) -> Iterator[None]:
        statements: list[str] = []
        token = self._current.set(statements)
        try:
            yield
        finally:
            self._current.reset(token)
            self.calls[name].append(statements)
