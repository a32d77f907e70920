"""What a release would change in a database, and what waits meanwhile."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from shared.postgres.connecting import connect

if TYPE_CHECKING:
    import asyncpg

MODULES: Final = {
    "gateway": "services.gateway.ledger.migrations",
    "orchestrator": "services.orchestrator.ledger.migrations",
    "results": "services.results.migrations",
    "scheduler": "services.scheduler.ledger.migrations",
}


class Wait(StrEnum):
    """What waits for a step of a migration, from the least to the most."""

    NOTHING = "nothing"
    WRITES_OF_ROWS = "writes of the same rows"
    WRITES = "writes"
    EVERYTHING = "everything"


# Bytes of a table and its indexes that a second gets through, measured with Postgres 18 on two
# cores, 280 MB, two indexes: 207 MB/s rewritten, 214 MB/s indexed, 8 MB/s updated.
BYTES_PER_SECOND: Final = {
    Wait.EVERYTHING: 100e6,
    Wait.WRITES: 100e6,
    Wait.WRITES_OF_ROWS: 8e6,
}
_STATEMENTS: Final = (
    (Wait.EVERYTHING, re.compile(r"ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+)\b(.*)", re.DOTALL)),
    (Wait.WRITES, re.compile(r"CREATE (?:UNIQUE )?INDEX \w* ?ON (\w+)\b(.*)", re.DOTALL)),
    (Wait.WRITES_OF_ROWS, re.compile(r"(?:UPDATE|DELETE FROM) (\w+)\b(.*)", re.DOTALL)),
)
_MADE: Final = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
# An ALTER TABLE that reads or writes each row.
_OF_EACH_ROW: Final = re.compile(
    r"GENERATED ALWAYS AS \(|\bTYPE\b|SET NOT NULL"
    r"|ADD (?:CONSTRAINT \w+ )?(?:CHECK|FOREIGN|UNIQUE|PRIMARY)"
    r"|DEFAULT (?:clock_timestamp|gen_random_uuid|random)"
)


class Step(Struct, frozen=True, kw_only=True):
    """What waits for one statement on a table that has `table_bytes`, for about `seconds`."""

    table: str
    waiting: Wait
    table_bytes: int
    seconds: float


class Pending(Struct, frozen=True, kw_only=True):
    """A schema that has `version`, where this release has `release_version`."""

    schema: str
    version: int
    release_version: int
    steps: tuple[Step, ...] = ()

    @property
    def is_newer(self) -> bool:
        """True if a later release has written it, so that this one does not start on it."""
        return self.version > self.release_version


def steps_of(migrations: Iterable[str], table_bytes: Mapping[str, int]) -> tuple[Step, ...]:
    """Return what waits for these texts; what they make themselves keeps nobody waiting."""
    made: set[str] = set()
    steps = []
    for text in migrations:
        made |= set(_MADE.findall(text))
        plain_text = re.sub(r"--[^\n]*|\$\$.*?\$\$", "", text, flags=re.DOTALL)
        for statement in plain_text.split(";"):
            step = _step_of(statement.strip(), made, table_bytes)
            if step is not None:
                steps.append(step)
    return tuple(steps)


def _step_of(statement: str, made: set[str], table_bytes: Mapping[str, int]) -> Step | None:
    for waiting, pattern in _STATEMENTS:
        match = pattern.match(statement)
        if match is None or match[1] in made:
            continue
        size = table_bytes.get(match[1], 0)
        takes_each_row = waiting is not Wait.EVERYTHING or _OF_EACH_ROW.search(match[2])
        seconds = size / BYTES_PER_SECOND[waiting] if takes_each_row else 0.0
        return Step(table=match[1], waiting=waiting, table_bytes=size, seconds=seconds)
    return None


def migrations_of(schema: str) -> Sequence[str]:
    """Return the texts of the service that has the schema."""
    texts: Sequence[str] = import_module(MODULES[schema]).MIGRATIONS
    return texts


SIZES: Final = """
SELECT relname::text AS name, pg_total_relation_size(c.oid) + coalesce((
    SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits
    WHERE inhparent = c.oid), 0)::bigint AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname = $1 AND relkind IN ('r', 'p')
"""
AGENTS: Final = """
SELECT node_id, host ->> 'release' AS release FROM scheduler.node
WHERE NOT removed AND host IS NOT NULL ORDER BY node_id
"""


async def read_pending(
    dsn: str,
    migrations: Mapping[str, Sequence[str]] | None = None,
    *,
    results_dsn: str | None = None,
) -> tuple[list[Pending], dict[str, str | None]]:
    """Return the schemas as they are, and the release that each node's agent runs; None: unknown.

    `results_dsn` is where the results service has a Postgres of its own. Changes nothing. A schema
    that is not there has version 0 and nobody who waits. Raises OSError and asyncpg.PostgresError
    where the database cannot be read.
    """
    texts = dict(migrations or {schema: migrations_of(schema) for schema in MODULES})
    elsewhere: list[Pending] = []
    if results_dsn is not None:
        elsewhere, _ = await read_pending(results_dsn, {"results": texts.pop("results")})
    connection = await connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            pending = [await _pending_of(connection, schema, texts[schema]) for schema in texts]
            has_nodes = await connection.fetchval("SELECT to_regclass('scheduler.node')")
            rows = await connection.fetch(AGENTS) if has_nodes is not None else []
        return pending + elsewhere, {row["node_id"]: row["release"] for row in rows}
    finally:
        await connection.close(timeout=5)


async def _pending_of(
    connection: "asyncpg.Connection[asyncpg.Record]", schema: str, texts: Sequence[str]
) -> Pending:
    version = 0
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.migration") is not None:
        version = await connection.fetchval(
            f"SELECT coalesce(max(version), 0) FROM {schema}.migration"
        )
    rows = await connection.fetch(SIZES, schema)
    sizes = {row["name"]: row["bytes"] for row in rows}
    steps = steps_of(texts[version:], sizes) if version else ()
    return Pending(schema=schema, version=version, release_version=len(texts), steps=steps)
