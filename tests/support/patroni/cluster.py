"""Patroni over two Postgres servers and etcd, all real processes on loopback ports."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
import msgspec
import psutil

from shared.local_platform.embedded.postgres_home import PostgresHome, own_directory, prepare_home
from shared.processes.child_process import ChildProcess
from shared.testing import eventually
from tests.support.benchmark_tools import processes_of
from tests.support.kubernetes import binaries
from tests.support.patroni.install import PATRONI
from tests.support.ports import free_ports

START_SECONDS: Final = 60.0
TTL_SECONDS: Final = 20  # the least that Patroni takes: so long a host that is gone keeps the lead
INSTALL: Final = "python -m tests.support.patroni.install"


def missing() -> str | None:
    """Why Patroni cannot be run here; None if it can."""
    if not PATRONI.is_current():
        return f"needs Patroni: .venv/bin/{INSTALL}"
    if not os.access(binaries.program("etcd"), os.X_OK):
        return f"needs etcd: .venv/bin/{binaries.BUILD_COMMAND}"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "needs setpriv: Postgres refuses root"
    return None


@dataclass(slots=True)
class Member:
    """A Patroni and its Postgres; killed alone or together, as a host that is gone."""

    name: str
    port: int
    rest_port: int
    home: PostgresHome
    directory: Path
    config: Path
    _patroni: ChildProcess | None = None

    def start(self) -> None:
        argv: Sequence[str | Path] = [PATRONI.python, "-m", "patroni", self.config]
        identity = self.home.run_as
        if identity is not None:
            # May read what only root may pass: this installation's Python, Patroni and Postgres.
            capability = "+dac_read_search"
            user = [f"--reuid={identity.uid}", f"--regid={identity.gid}", "--clear-groups"]
            rights = [f"--inh-caps={capability}", f"--ambient-caps={capability}"]
            argv = ["setpriv", *user, *rights, "--pdeathsig=KILL", *argv]
        self._patroni = ChildProcess.spawn(
            f"patroni-{self.name}",
            argv,
            env={"PATH": os.defpath, "LC_ALL": "C", "HOME": str(self.home.root)},
            log_path=self.directory / f"patroni-{self.name}.log",
            cwd=self.home.root / "work",
        )

    def log_tail(self) -> str:
        return (self.directory / f"patroni-{self.name}.log").read_text(errors="replace")[-4000:]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill_postgres(self) -> None:
        """SIGKILL of the server and all its processes; Patroni sees it."""
        for process in self._postgres():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def kill_host(self) -> None:
        """SIGKILL of Patroni and Postgres."""
        if self._patroni is not None:
            self._patroni.kill()
            await self._patroni.wait()
        self.kill_postgres()

    async def status(self) -> dict[str, Any]:
        """What Patroni answers about its server; empty while it does not."""
        return await self.ask("patroni")

    async def ask(self, path: str) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.rest_port}/{path}") as response,
            ):
                return dict(await response.json(content_type=None))
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError):
            return {}

    def _postgres(self) -> list[psutil.Process]:
        servers = [p for p in processes_of(self.home.root / "work") if _is_server(p)]
        return [p for server in servers for p in (server, *_children(server))]


@dataclass(slots=True)
class PatroniCluster:
    """Two members; `dsn` names both."""

    members: list[Member]
    etcd: ChildProcess
    directory: Path
    leaders: list[str] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.dsn_of("gpusteward")

    def dsn_of(self, database: str) -> str:
        addresses = ",".join(member.address for member in self.members)
        return f"postgresql://postgres@{addresses}/{database}"

    async def leader(self) -> Member | None:
        """The member that is the primary now."""
        for member in self.members:
            status = await member.status()
            if status.get("role") in {"primary", "master"} and status.get("state") == "running":
                return member
        return None

    async def is_whole(self, *, is_synchronous: bool) -> bool:
        """Whether there is a primary and a standby that streams, known as synchronous if it is."""
        standby_role = "sync_standby" if is_synchronous else "replica"
        for member in self.members:
            view = await member.ask("cluster")
            states = {one["role"]: one["state"] for one in view.get("members", ())}
            if states == {"leader": "running", standby_role: "streaming"}:
                return True
        return False

    async def await_whole(self, *, is_synchronous: bool, within_seconds: float = 90.0) -> Member:
        try:
            await eventually(
                lambda: self.is_whole(is_synchronous=is_synchronous),
                within_seconds=within_seconds,
                every_seconds=0.1,
                what="a primary and a standby",
            )
        except AssertionError as error:
            for member in self.members:
                error.add_note(f"{member.name}:\n{member.log_tail()}")
            raise
        leader = await self.leader()
        assert leader is not None
        return leader

    async def await_other_leader(self, former: Member, *, within_seconds: float) -> Member:
        found: list[Member] = []

        async def is_other() -> bool:
            found[:] = [
                member
                for member in self.members
                if member is not former
                and (await member.status()).get("role") in {"primary", "master"}
            ]
            return bool(found)

        await eventually(
            is_other, within_seconds=within_seconds, every_seconds=0.05, what="a promotion"
        )
        return found[0]


@asynccontextmanager
async def patroni_cluster(
    directory: Path, *, is_synchronous: bool = True
) -> AsyncIterator[PatroniCluster]:
    """Both members running, a primary and its standby; the database `gpusteward` made."""
    client, peer, *ports = free_ports(6)
    places = {"a": (ports[0], ports[1]), "b": (ports[2], ports[3])}
    etcd = _start_etcd(directory, client, peer)
    members = [
        _make_member(directory, name, port, rest, client, is_synchronous)
        for name, (port, rest) in places.items()
    ]
    cluster = PatroniCluster(members, etcd, directory)
    try:
        for member in members:
            member.start()
        leader = await cluster.await_whole(is_synchronous=is_synchronous)
        connection = await asyncpg.connect(f"postgresql://postgres@{leader.address}/postgres")
        await connection.execute("CREATE DATABASE gpusteward")
        await connection.close()
        yield cluster
    finally:
        for member in members:
            await member.kill_host()
        etcd.kill()
        await etcd.wait()


def _start_etcd(directory: Path, client: int, peer: int) -> ChildProcess:
    return ChildProcess.spawn(
        "etcd",
        [
            binaries.program("etcd"),
            f"--data-dir={directory}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--log-level=warn",
        ],
        env={},
        log_path=directory / "etcd.log",
        cwd=directory,
    )


def _make_member(
    directory: Path, name: str, port: int, rest_port: int, etcd_port: int, is_synchronous: bool
) -> Member:
    home = prepare_home(directory / name)
    work = home.root / "work"
    own_directory(work, home.run_as)
    user = {"username": "postgres"}
    config = {
        "scope": "gpusteward",
        "name": name,
        "restapi": {
            "listen": f"127.0.0.1:{rest_port}",
            "connect_address": f"127.0.0.1:{rest_port}",
        },
        "etcd3": {"hosts": f"127.0.0.1:{etcd_port}"},
        "bootstrap": {
            "dcs": {
                "ttl": TTL_SECONDS,
                "loop_wait": 1,
                "retry_timeout": 3,
                "maximum_lag_on_failover": 1 << 30,
                "primary_start_timeout": 0,  # rather the standby than a recovery of the primary
                "synchronous_mode": is_synchronous,
                "postgresql": {
                    "use_pg_rewind": True,
                    "use_slots": True,
                    "parameters": {
                        "fsync": "off",
                        "max_connections": 200,
                        "shared_buffers": "48MB",
                        "jit": "off",
                        "wal_keep_size": "256MB",
                    },
                },
            },
            "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{port}",
            "connect_address": f"127.0.0.1:{port}",
            "data_dir": str(work / "cluster"),
            "pgpass": str(work / "pgpass"),
            "bin_dir": str(home.programs),
            "authentication": {"superuser": user, "replication": user, "rewind": user},
            "pg_hba": [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host replication all 127.0.0.1/32 trust",
            ],
            "parameters": {"unix_socket_directories": str(home.socket_dir)},
        },
    }
    path = directory / f"patroni-{name}.yml"  # JSON is YAML
    path.write_bytes(msgspec.json.encode(config))
    path.chmod(0o644)
    return Member(name, port, rest_port, home, directory, path)


def _is_server(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "postgres"
    return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []
