"""What Postgres says of its built-in types, asked once in a process for each set of them.

asyncpg asks for every array and range that a statement names, on each connection anew: 9 ms of the
server, a third of what it did in a short life of a service (docs/explanation/performance.md).
"""

from collections.abc import Iterable
from typing import Any, Final

import asyncpg

# Ids below are assigned by hand in Postgres' sources: the same on every server, for good.
FIRST_UNFIXED_OID: Final = 10_000

_introspected: Final[dict[frozenset[int], Any]] = {}


class TypeKnowingConnection(asyncpg.Connection):
    """Asks for types that a database's own statements made as ever."""

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109  # as asyncpg calls it
    ) -> Any:
        # Drop when asyncpg describes built-in arrays and ranges itself.
        oids = frozenset(typeoids)
        if max(oids) >= FIRST_UNFIXED_OID:
            return await super()._introspect_types(oids, timeout)  # type: ignore[misc]
        if oids not in _introspected:
            _introspected[oids] = await super()._introspect_types(oids, timeout)  # type: ignore[misc]
        return _introspected[oids]
