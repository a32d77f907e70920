"""The API's table of operations as TypeScript, for the web page."""

from collections.abc import Iterator
from typing import Any, Final, get_args

from msgspec import Struct

from schemas.base import API
from schemas.gateway.endpoint import Endpoint, camel_case
from schemas.gateway.endpoints import ENDPOINTS

HEADER: Final = """\
// Written by `python -m schemas.export schemas/exported`; not to be edited.
import type {
%s
} from "./messages";

/** Where the paths of most operations begin. */
export const API = "@API@";

/** An operation of the API: what its path and its query take, its body, and its answer. */
export interface Endpoint<Place extends string, Query extends string, Body, Answer> {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  /** For the compiler alone. */
  readonly types?: { place: Place; query: Query; body: Body; answer: Answer };
}
"""


def endpoints_typescript() -> str:
    """Return a constant for each operation, by the name that it has in the API's document."""
    rows = ENDPOINTS.values()
    names = {name for row in rows for kind in (row.answer, row.body) for name in _structs(kind)}
    imports = "\n".join(f"  {name}," for name in sorted(names))
    return HEADER.replace("@API@", API) % imports + "".join(
        f"\n{_constant(name, row)}" for name, row in ENDPOINTS.items()
    )


def _constant(name: str, row: Endpoint[Any]) -> str:
    types = (_words(row.places), _words(row.query), _type(row.body), _type(row.answer))
    value = f'{{ method: "{row.method}", path: "{row.root + row.path}" }}'
    return (
        f"export const {camel_case(name)}: Endpoint<\n"
        + "".join(f"  {part},\n" for part in types)[:-2]
        + f"\n> = {value};\n"
    )


def _words(names: tuple[str, ...]) -> str:
    return " | ".join(f'"{name}"' for name in names) or "never"


def _structs(kind: Any) -> Iterator[str]:
    for member in get_args(kind) or (kind,):
        if isinstance(member, type) and issubclass(member, Struct):
            yield member.__name__


def _type(kind: Any) -> str:
    if kind is str:
        return "string"
    if kind is None or kind is type(None):
        return "undefined"
    return " | ".join(_structs(kind)) or "unknown"
