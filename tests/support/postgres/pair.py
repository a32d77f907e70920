"""Two real Postgres servers on loopback ports: a primary and what streams from it."""

import contextlib
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil

from shared.local_platform.embedded import EmbeddedPostgres
from shared.local_platform.embedded.postgres_home import own_directory
from tests.support.ports import free_port

SETTINGS: Final = {"fsync": "off", "full_page_writes": "off", "wal_level": "replica"}
BACKUP_SECONDS: Final = 30.0


class LoopbackPostgres(EmbeddedPostgres):
    """An embedded Postgres that listens on a port of its own, for everybody on this host."""

    def __init__(
        self, home: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port() if port is None else port
        super().__init__(home, settings={**SETTINGS, "port": str(self.port), **(settings or {})})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def dsn_of(self, database: str) -> str:
        return f"postgresql://postgres@{self.address}/{database}"

    def _server_arguments(self, place: Any) -> list[str]:
        arguments = super()._server_arguments(place)
        return [
            "listen_addresses=127.0.0.1" if argument == "listen_addresses=" else argument
            for argument in arguments
        ]

    async def follow(self, primary: "LoopbackPostgres") -> None:
        """Copy a primary that runs, and start as its standby, under the name `standby`."""
        own_directory(self.place.cluster, self.place.run_as)
        await self._run(
            "pg_basebackup",
            [
                *("--pgdata", str(self.place.cluster), "--write-recovery-conf"),
                *("--wal-method", "stream", "--checkpoint", "fast"),
                "--dbname",
                f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby",
            ],
            BACKUP_SECONDS,
        )
        await self.start()

    async def promote(self) -> None:
        """Make a standby the primary; it takes writes when this returns."""
        await self.run_statement("SELECT pg_promote(true, 30)")

    async def run_statement(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn_of("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def crash(self) -> None:
        """SIGKILL of all its processes, and gone when this returns."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await self.wait()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Its processes take connections, and neither answer nor end."""
        stopped = self._processes()
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)

    def _processes(self) -> list[psutil.Process]:
        server = psutil.Process(self.pid)
        return [server, *server.children(recursive=True)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary and its standby; who is which is as it was at the start."""

    primary: LoopbackPostgres
    standby: LoopbackPostgres

    @property
    def dsn(self) -> str:
        """Both, the standby first."""
        return f"postgresql://postgres@{self.standby.address},{self.primary.address}/gpusteward"


@asynccontextmanager
async def postgres_pair(directory: Path, *, is_synchronous: bool = True) -> AsyncIterator[Pair]:
    primary = LoopbackPostgres(directory / "a")
    standby = LoopbackPostgres(directory / "b")
    try:
        await primary.start()
        await standby.follow(primary)
        if is_synchronous:
            await primary.run_statement("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            await primary.run_statement("SELECT pg_reload_conf()")
        yield Pair(primary, standby)
    finally:
        for server in (standby, primary):
            server.kill()
            await server.stop()
