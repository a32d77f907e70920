"""Real servers for tests. Nothing but tests may import this."""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Final, TypeVar

import asyncpg
import nats
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from shared.local_platform.embedded import EmbeddedNats, EmbeddedPostgres
from shared.paths import ROOT_STATE_DIR

T = TypeVar("T")
# Longer than NATS waits (30 s) before it delivers again what was not acknowledged.
DEADLINE_SECONDS: Final = 45.0

EMPTY_DATABASE: Final = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
END $$;
CREATE SCHEMA public AUTHORIZATION pg_database_owner;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""

_database_numbers = itertools.count(1)


def run_apart(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end on a loop of its own; the calling thread's setting stays."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


async def eventually(
    claim: Callable[[], bool | Awaitable[bool]],
    *,
    within_seconds: float = DEADLINE_SECONDS,
    every_seconds: float = 0.02,
    what: str = "the condition",
) -> None:
    """Repeat until `claim` holds. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + within_seconds
    while True:
        holds = claim()
        if not isinstance(holds, bool):
            holds = await holds
        if holds:
            return
        if time.monotonic() >= deadline:
            raise AssertionError(f"expected {what} within {within_seconds} s")
        await asyncio.sleep(every_seconds)


@contextlib.contextmanager
def short_directory(prefix: str = "gpusteward-test-") -> Iterator[Path]:
    """A directory that a database's user may pass and whose sockets have short paths."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    if os.geteuid() == 0:
        path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class NatsServer(EmbeddedNats):
    """An embedded nats-server with the accidents that tests need, and a user who may everything."""

    @property
    def credentials_path(self) -> Path:
        """The credentials file of the user who may do everything."""
        return self.home / "credentials.json"

    @property
    def authenticated_url(self) -> str:
        """The address with user and password, for clients that take nothing else."""
        login = json.loads(self.credentials_path.read_text())
        return self.url.replace("//", f"//{login['user']}:{login['password']}@")

    def _prepare(self) -> None:
        super()._prepare()
        if not self.credentials_path.exists():
            login = {"user": "everything", "password": secrets.token_urlsafe(32)}
            self.credentials_path.write_text(json.dumps(login))
        users = self.users.configuration_path
        entry = f"users = [\n    {self.credentials_path.read_text()}\n"
        users.write_text(users.read_text().replace("users = [\n", entry, 1))

    async def crash(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.kill()
        await self.wait()

    async def crash_and_lose_store(self) -> None:
        """SIGKILL it and delete its store; `start` brings it back empty on the same port."""
        await self.crash()
        shutil.rmtree(self.store_dir)

    async def connect(self) -> Client:
        """A plain client."""
        return await nats.connect(self.authenticated_url)

    async def clear(self) -> None:
        """Delete every stream, and with them consumers, key-value and object stores."""
        client = await self.connect()
        try:
            streams = client.jetstream()
            for name in [info.config.name for info in await streams.streams_info()]:
                if name is not None:
                    with contextlib.suppress(NotFoundError):
                        await streams.delete_stream(name)
        finally:
            await client.close()


class PostgresServer(EmbeddedPostgres):
    """An embedded Postgres that hands out databases.

    Waiting for the disk is off: what a killed process wrote survives anyway, only a power cut would
    show. So is autovacuum: nothing lives for long enough to gain by it.
    """

    def __init__(self, home: Path) -> None:
        settings = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
        super().__init__(home, settings=settings)
        self._spare: list[str] = []

    async def take_database(self) -> str:
        """An empty database under a name that no other had before; returns its DSN.

        One that was given back is used again: to make one is a copy of 300 files, which where they
        are written to a disk costs more than most tests.
        """
        name = f"test_{os.getpid()}_{next(_database_numbers)}"
        if self._spare:
            await self.execute(f'ALTER DATABASE "{self._spare.pop()}" RENAME TO "{name}"')
        else:
            await self.execute(f'CREATE DATABASE "{name}" STRATEGY file_copy')
        return self.dsn_of(name)

    async def give_back_database(self, dsn: str) -> None:
        """Close every connection to a database that `take_database` gave, and empty it."""
        await self.execute(EMPTY_DATABASE, dsn=dsn)
        self._spare.append(dsn.removeprefix("postgresql://postgres@/").split("?")[0])

    async def execute(self, statement: str, *, dsn: str | None = None) -> None:
        """Run a statement, in the database `postgres` unless told."""
        connection = await asyncpg.connect(dsn or self.dsn_of("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def database_of(server: PostgresServer) -> AsyncIterator[str]:
    """The DSN of an empty database that is given back afterwards."""
    dsn = await server.take_database()
    try:
        yield dsn
    finally:
        await server.give_back_database(dsn)


def forget_placed_elsewhere(wanted_home: Path) -> None:
    """Remove what an embedded Postgres put under /var/lib/gpusteward because of `wanted_home`."""
    with contextlib.suppress(FileNotFoundError):
        placed = Path((wanted_home / "MOVED").read_text().splitlines()[-1])
        if placed.is_relative_to(ROOT_STATE_DIR / "by-id"):
            shutil.rmtree(placed.parent)
