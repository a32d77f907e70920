"""Databases whose tables stay from test to test, and whose rows do not: to migrate a schema and to
drop it again costs more than most tests of its service.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from shared.postgres.database import Database
from shared.testing import PostgresServer

# The rows that migrations made; their tables have no sequences.
REMEMBER: Final = """
CREATE SCHEMA remembered;
DO $$
DECLARE
    one record;
    has_rows boolean;
BEGIN
    FOR one IN SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname = '{schema}' AND relkind = 'r'
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM {schema}.%I)', one.relname) INTO has_rows;
        IF has_rows THEN
            EXECUTE format('CREATE TABLE remembered.%1$I AS TABLE {schema}.%1$I', one.relname);
        END IF;
    END LOOP;
END $$;
"""
RESET: Final = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE
    one record;
BEGIN
    SET LOCAL session_replication_role = replica;  -- no triggers, no order of foreign keys
    FOR one IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'
        AND nspname NOT IN ('information_schema', 'public', 'remembered', '{schema}')
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', one.nspname);
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
    FOR one IN SELECT relname, relispartition, pg_relation_size(c.oid) > 1000000 AS is_large
        FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname = '{schema}' AND relkind = 'r'
    LOOP
        IF one.relispartition THEN  -- services make them, migrations do not
            EXECUTE format('DROP TABLE {schema}.%I', one.relname);
        ELSIF one.is_large THEN  -- or the tests that follow would read past what is dead
            EXECUTE format('TRUNCATE {schema}.%I CASCADE', one.relname);
        ELSE
            EXECUTE format('DELETE FROM {schema}.%I', one.relname);
        END IF;
    END LOOP;
    FOR one IN SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE nspname = 'remembered' AND relkind = 'r'
    LOOP
        EXECUTE format('INSERT INTO {schema}.%1$I SELECT * FROM remembered.%1$I', one.relname);
    END LOOP;
END $$;
"""
# What a test that alters the schema would leave to the next.
SHAPE: Final = """
SELECT md5(string_agg(concat(relname, attname, atttypid), ' ' ORDER BY relname, attname))
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid = c.oid
WHERE nspname = $1 AND NOT attisdropped
"""


@dataclass(slots=True)
class KeptSchema:
    """Of one service on one server. One that a test has altered is not used again."""

    server: PostgresServer
    schema: str
    migrations: Sequence[str]
    _spare: list[str] = field(default_factory=list)
    _shape: str = ""

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The DSN of a database as it is after the service's first start."""
        dsn = self._spare.pop() if self._spare else await self._made()
        try:
            yield dsn
        finally:
            if await self._reset(dsn):
                self._spare.append(dsn)
            else:
                await self.server.give_back_database(dsn)

    async def _made(self) -> str:
        dsn = await self.server.take_database()
        database = Database(dsn, self.schema, self.migrations)
        await database.open()
        await database.close()
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(REMEMBER.replace("{schema}", self.schema))
            self._shape = await connection.fetchval(SHAPE, self.schema)
        finally:
            await connection.close()
        return dsn

    async def _reset(self, dsn: str) -> bool:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(RESET.replace("{schema}", self.schema))
            return bool(await connection.fetchval(SHAPE, self.schema) == self._shape)
        finally:
            await connection.close()


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Database]:
    """A service's part of a database, migrated and open."""
    await database.open()
    try:
        yield database
    finally:
        await database.close()
