"""What the API's table of operations has of each, and how a request of it is addressed."""

import re
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import API
from schemas.gateway.tokens import Role

A = TypeVar("A")
B = TypeVar("B")


class Endpoint(Struct, Generic[A], frozen=True):
    """One operation. `path` has its parameters in braces, `query` the names of the others.

    `role` is the least that a caller needs; whose things it may see or change is decided by the
    route. An answer of `bytes` is a file, one of `str` a text, all others are JSON. `is_audited`:
    a change by it is in the audit log. `timeout_seconds` is how long a client waits for an answer
    that takes long; None: as for any other.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    answer: type[A]
    query: tuple[str, ...] = ()
    body: Any = None
    role: Role = Role.VIEWER
    status: int = 200
    is_audited: bool = False
    timeout_seconds: float | None = None
    root: str = API

    @property
    def places(self) -> tuple[str, ...]:
        """Return the names of the path's parameters."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    def read_as(self, answer: type[B]) -> "Endpoint[B]":
        """Return the same operation for a client that wants less, or other, of its answer."""
        row: Endpoint[Any] = self
        return replace(row, answer=answer)

    def address(self, **places: object) -> str:
        """Return the address below the gateway's, with these values in the path's braces."""
        quoted = {name: quote(str(value), safe="") for name, value in places.items()}
        return self.root + self.path.format_map(quoted)

    def fill(self, arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
        """Return the address and the query with these arguments. Raises TypeError for one that the
        operation does not take.
        """
        query = {name: value for name, value in arguments.items() if name in self.query}
        places = {name: value for name, value in arguments.items() if name not in self.query}
        if unknown := places.keys() - self.places:
            raise TypeError(f"{self.method} {self.path} takes no {', '.join(sorted(unknown))}")
        return self.address(**places), query


def camel_case(name: str) -> str:
    """Return `listTasks` for `list_tasks`."""
    first, *other_words = name.split("_")
    return first + "".join(word.title() for word in other_words)


def read(
    path: str,
    answer: type[A],
    *query: str,
    role: Role = Role.VIEWER,
    timeout_seconds: float | None = None,
    root: str = API,
) -> Endpoint[A]:
    return Endpoint(
        "GET",
        path,
        answer,
        query,
        role=role,
        timeout_seconds=timeout_seconds,
        root=root,
    )


def ask(path: str, body: Any, answer: type[A], *query: str) -> Endpoint[A]:
    """Declare a question that is too large for a query: it changes nothing."""
    return Endpoint("POST", path, answer, query, body)


def change(
    path: str,
    body: Any,
    answer: type[A],
    *query: str,
    role: Role = Role.SUBMITTER,
    status: int = 200,
    is_audited: bool = True,
    timeout_seconds: float | None = None,
) -> Endpoint[A]:
    return Endpoint("POST", path, answer, query, body, role, status, is_audited, timeout_seconds)


def delete(path: str, answer: type[A], *query: str, role: Role = Role.SUBMITTER) -> Endpoint[A]:
    return Endpoint("DELETE", path, answer, query, role=role, is_audited=True)
