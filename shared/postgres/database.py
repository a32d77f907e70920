"""A service's part of Postgres: its own role and schema, migrations, transactions."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, cast

import asyncpg
import msgspec

from shared.errors import PermanentError
from shared.logging import log
from shared.postgres.connecting import LASTING, connect, describe_lasting
from shared.postgres.kept_plans import KEPT_PLANS
from shared.postgres.known_types import TypeKnowingConnection
from shared.postgres.outages import OUTSIDE_DOWN, SERVER_GONE, UNSTORABLE, unavailable
from shared.postgres.pooler import (
    LOST_ROLE,
    PoolerRefused,
    is_pooler_refusal,
    refuse_lost_role,
    refuse_pooler,
)
from shared.postgres.roles import role_of
from shared.settings import CommonSettings, SettingsError
from shared.waiting import within

if TYPE_CHECKING:
    from shared.postgres.command_audit import CommandAudit

T = TypeVar("T")

MIGRATION_LOCK: Final = 0x67707573  # one lock for all services: roles are shared by the cluster
COMMAND_TIMEOUT_SECONDS: Final = 10.0
OPEN_RETRY_SECONDS: Final = 0.25
# Behind a migration that waits for a table all others wait: it gives up soon, and comes again.
TABLE_LOCK_TIMEOUT: Final = "2s"
TABLE_LOCK_RETRY_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = 5.0
# For a statement that was cancelled to end; of a server that hangs none does.
RELEASE_SECONDS: Final = 2.0

PAUSED_TIMEOUT: Final = "10s"

SHARED_TABLES: Final = """
CREATE TABLE IF NOT EXISTS migration (
    version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS command (
    command_id uuid PRIMARY KEY, body_hash bytea NOT NULL, reply bytea,
    created_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX IF NOT EXISTS command_created ON command (created_at);
CREATE TABLE IF NOT EXISTS outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL UNIQUE,
    subject text NOT NULL, body bytea NOT NULL, traceparent text,
    created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz);
CREATE INDEX IF NOT EXISTS outbox_unpublished ON outbox (id) WHERE published_at IS NULL;
CREATE INDEX IF NOT EXISTS outbox_traced ON outbox (substring(subject FROM '[^.]*$'))
    WHERE traceparent IS NOT NULL;
CREATE TABLE IF NOT EXISTS relay_state (
    stream text PRIMARY KEY, created_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS outgoing (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, command_id uuid NOT NULL UNIQUE,
    lane text NOT NULL, tag text NOT NULL, body bytea NOT NULL, attempts int NOT NULL DEFAULT 0,
    holds_lane boolean NOT NULL DEFAULT false, next_attempt_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS dead_letter (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, subject text NOT NULL, body bytea NOT NULL,
    error text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
"""


class SchemaTooNew(SettingsError):
    """The schema was migrated by a later release."""


class Row(Protocol):
    """A row of an answer by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class Writer(Protocol):
    """What takes a write: a connection runs it, `Writes` run it with others later."""

    async def execute(self, query: str, *args: object) -> str:
        """Take a statement whose answer nobody needs."""


class Connection(Protocol):
    """What statements run on: a connection of asyncpg or its pool's proxy of one."""

    async def execute(self, query: str, *args: object) -> str:
        """Run one statement, or several without arguments; the command tag, such as `UPDATE 2`."""

    async def executemany(self, command: str, args: Iterable[Sequence[object]]) -> None:
        """Run a statement once for each sequence of arguments, all or none."""

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Return all rows."""

    async def fetchrow(self, query: str, *args: object) -> asyncpg.Record | None:
        """The first row; None if there is none."""

    async def fetchval(self, query: str, *args: object) -> Any:
        """The first column of the first row; None if there is no row."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction, or a savepoint inside one."""

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str:
        """Insert by the COPY protocol."""

    async def copy_to_table(
        self,
        table_name: str,
        *,
        source: AsyncIterable[bytes],
        columns: Sequence[str],
        format: Literal["binary"],  # noqa: A002  # as asyncpg names it
    ) -> str:
        """Insert by the COPY protocol what is encoded already."""


@dataclass(slots=True)
class _Notes:
    """What a transaction has staged; read after its commit."""

    outbox: bool = False
    outgoing: bool = False


_notes: ContextVar[_Notes | None] = ContextVar("transaction_notes", default=None)


def note_staged(*, outbox: bool = False, outgoing: bool = False) -> None:
    """Remember that the running transaction leaves work for the relay or the sender."""
    if (notes := _notes.get()) is not None:
        notes.outbox |= outbox
        notes.outgoing |= outgoing


def to_json(value: object) -> str:
    """A Struct as text for a jsonb column."""
    return msgspec.json.encode(value).decode()


def from_json(text: str | bytes, type_: type[T]) -> T:
    """Decode what `to_json` wrote. Raises msgspec.ValidationError if the column holds something
    else.
    """
    return msgspec.json.decode(text, type=type_)


async def _leave(_: Connection) -> None:
    """Leave the session as it is: nothing is set beyond a transaction, so no statement has to reset
    it.
    """


@dataclass(slots=True)
class Database:
    """One pool of connections, acting as the role `gpusteward_<schema>` in that schema.

    `migrations` are applied once each, in order, under an advisory lock; a position in the sequence
    is a version, so texts are only ever appended. `command_audit` records commands of people, where
    the bus has users. With `keeps_plans` a statement is planned once, not for each of its runs.
    """

    dsn: str
    schema: str
    migrations: Sequence[str]
    max_connections: int = 6
    keeps_plans: bool = False
    outbox_wake: asyncio.Event = field(default_factory=asyncio.Event)
    outgoing_wake: asyncio.Event = field(default_factory=asyncio.Event)
    command_audit: "CommandAudit | None" = None
    _pool: "asyncpg.Pool[Any] | None" = None

    @classmethod
    def from_settings(
        cls,
        schema: str,
        settings: CommonSettings,
        migrations: Sequence[str],
        *,
        dsn: str | None = None,
        keeps_plans: bool = False,
    ) -> "Database":
        """A service's part of the installation's Postgres, or of one of its own that `dsn` names.

        Raises SettingsError without one.
        """
        dsn = dsn or settings.postgres_dsn
        if dsn is None:
            raise SettingsError(f"{schema}: expected GPUSTEWARD_POSTGRES_DSN, found none")
        return cls(dsn, schema, migrations, keeps_plans=keeps_plans)

    @property
    def pool(self) -> "asyncpg.Pool[Any]":
        """The open pool. Raises RuntimeError before `open`."""
        if self._pool is None:
            raise RuntimeError(f"database {self.schema} is not open")
        return self._pool

    async def open(self) -> None:
        """Wait for Postgres, make role and schema, migrate.

        Idempotent; safe when services start at once. Raises SchemaTooNew, and SettingsError for an
        address that no waiting mends, with nothing changed.
        """
        if self._pool is not None:
            return
        while True:
            try:
                await self._prepare()
                self._pool = await self._make_pool()
                return
            except LASTING as error:
                raise SettingsError(describe_lasting(self.dsn, error)) from error
            except OUTSIDE_DOWN as error:
                if is_pooler_refusal(error):
                    raise PoolerRefused(LOST_ROLE) from error
                log.warning("postgres_unreachable", error=repr(error))
                await asyncio.sleep(OPEN_RETRY_SECONDS)
            except asyncpg.LockNotAvailableError as error:
                log.warning("migration_waits", schema=self.schema, error=str(error))
                await asyncio.sleep(TABLE_LOCK_RETRY_SECONDS)

    async def close(self) -> None:
        """Give the connections back; waits at most 5 s for statements under way."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with within(CLOSE_SECONDS):
                await pool.close()
        except (TimeoutError, *OUTSIDE_DOWN):
            pool.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a transaction; after the commit the relay and the sender are woken.

        Raises UnavailableError when Postgres is out of reach. A commit cut off on its way may have
        happened: what runs here must bear to be repeated.
        """
        notes = _Notes()
        token = _notes.set(notes)
        try:
            async with self.statements() as connection, connection.transaction():
                yield connection
        finally:
            _notes.reset(token)
        if notes.outbox:
            self.outbox_wake.set()
        if notes.outgoing:
            self.outgoing_wake.set()

    @asynccontextmanager
    async def statements(self) -> AsyncIterator[Connection]:
        """A connection on which every statement is a transaction of its own; nothing is staged.

        Raises UnavailableError when Postgres is out of reach, PermanentError for what it cannot
        hold.
        """
        pool = self.pool
        try:
            connection = await pool.acquire(timeout=COMMAND_TIMEOUT_SECONDS)
        except OUTSIDE_DOWN as error:
            raise unavailable(error) from error
        try:
            try:
                yield connection
            finally:
                await pool.release(connection, timeout=RELEASE_SECONDS)
        except OUTSIDE_DOWN as error:
            if isinstance(error, SERVER_GONE):
                await pool.expire_connections()
            raise unavailable(error) from error
        except UNSTORABLE as error:
            raise PermanentError(f"what cannot be stored: {error.args[0]}") from error

    @property
    def _role(self) -> str:
        return role_of(self.schema)

    async def _make_pool(self) -> "asyncpg.Pool[Any]":
        pool: asyncpg.Pool[Any] = await asyncpg.create_pool(
            self.dsn,
            connect=cast(Any, connect),  # its stub asks for names that it does not call by
            connection_class=TypeKnowingConnection,
            min_size=0,  # or asyncpg logs a traceback whenever a server is away
            max_size=self.max_connections,
            command_timeout=COMMAND_TIMEOUT_SECONDS,
            reset=_leave,
            server_settings={
                "role": self._role,
                "search_path": self.schema,
                "application_name": f"gpusteward-{self.schema}",
                # The rows that a paused process has locked are free again after that.
                "idle_in_transaction_session_timeout": PAUSED_TIMEOUT,
                **(KEPT_PLANS if self.keeps_plans else {}),
            },
        )
        try:
            async with pool.acquire(timeout=COMMAND_TIMEOUT_SECONDS) as connection:
                await refuse_lost_role(connection, self._role)
        except BaseException:
            pool.terminate()
            raise
        return pool

    async def _prepare(self) -> None:
        connection = await connect(self.dsn)
        try:
            await refuse_pooler(connection, self.dsn)
            await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
            await connection.execute(f"SET lock_timeout = '{TABLE_LOCK_TIMEOUT}'")
            async with connection.transaction():
                await self._make_role(connection)
                await connection.execute(f"SET ROLE {self._role}")
                await connection.execute(f"SET search_path TO {self.schema}")
                await connection.execute(SHARED_TABLES)
            await self._migrate(connection)
        finally:
            await connection.close(timeout=5)

    async def _make_role(self, connection: Connection) -> None:
        """Make the service's role, with a login of many rights; the service's own login finds it
        made.
        """
        if await connection.fetchval("SELECT current_user") == self._role:
            return
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", self._role):
            await connection.execute(f"CREATE ROLE {self._role} NOLOGIN")
        await connection.execute(f"GRANT {self._role} TO CURRENT_USER")
        await connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {self.schema} AUTHORIZATION {self._role}"
        )

    async def _migrate(self, connection: Connection) -> None:
        done = await connection.fetchval("SELECT coalesce(max(version), 0) FROM migration")
        if done > len(self.migrations):
            raise SchemaTooNew(
                f"schema {self.schema} of the database has version {done}, this release knows "
                f"versions up to {len(self.migrations)}: a later release, or one before 0.1.0, has "
                "written it; start that release, or use another database or data directory"
            )
        for version, text in enumerate(self.migrations, start=1):
            if version > done:
                async with connection.transaction():  # its own: few tables are locked at a time
                    await connection.execute(text)
                    await connection.execute("INSERT INTO migration (version) VALUES ($1)", version)
                log.info("migrated", schema=self.schema, version=version)
