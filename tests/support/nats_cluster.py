"""Real nats-servers that keep streams together, with the accidents that happen to one of them."""

import asyncio
import contextlib
import gc
import shutil
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import StreamInfo

from shared.local_platform.bus_users import BusUsers
from shared.paths import make_directory
from shared.testing import NatsServer, eventually
from tests.support.ports import free_ports

READY_SECONDS = 40.0
_CLUSTER = """
cluster {{
  name: test
  listen: "127.0.0.1:{port}"
  routes: [{routes}]
  pool_size: 1
  {more}
}}
"""


class ClusteredNats(NatsServer):
    """One server of a cluster. All have the users of the first."""

    def __init__(self, home: Path, name: str, users: Path, route_port: int) -> None:
        super().__init__(home)
        self.server_name = name
        self.users = BusUsers(users)
        self.route_port = route_port
        self.routes: Sequence[str] = ()
        self.more = ""  # of the configuration of its routes

    @property
    def credentials_path(self) -> Path:
        return self.users.directory.parent / "credentials.json"

    def _prepare(self) -> None:
        super()._prepare()
        text = self._configuration_path.read_text()
        text = text.replace("include users/", "include ../n1/users/")
        text = text.replace("server_name: gpusteward", f"server_name: {self.server_name}")
        routes = ", ".join(f'"{route}"' for route in self.routes)
        self._configuration_path.write_text(
            text + _CLUSTER.format(port=self.route_port, routes=routes, more=self.more)
        )


@dataclass
class NatsCluster:
    """Servers n1, n2, ... below one directory."""

    home: Path
    count: int = 3
    servers: list[ClusteredNats] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        make_directory(self.home, 0o700)
        for port in free_ports(self.count):
            self._add(port)

    @property
    def url(self) -> str:
        """Every server's address, without credentials."""
        return ",".join(server.url for server in self.servers)

    @property
    def authenticated_url(self) -> str:
        """Every server's address, with a user who may do everything."""
        return ",".join(server.authenticated_url for server in self.servers)

    async def start(self) -> None:
        """Start all, and wait until they keep streams."""
        for server in self.servers:
            await server.start()
        await self.await_streams()

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def grow(self) -> ClusteredNats:
        """Start one more server, as an operator does: the others learn of it by its routes."""
        server = self._add(free_ports(1)[0])
        await server.start()
        return server

    async def await_streams(self) -> None:
        """Wait until streams can be made."""
        async with self.client() as client:
            jetstream = client.jetstream(timeout=1)

            async def has_streams() -> bool:
                try:
                    await jetstream.account_info()
                    return True
                except (nats.errors.Error, nats.js.errors.Error, TimeoutError):
                    return False

            await eventually(has_streams, within_seconds=READY_SECONDS, what="a cluster's streams")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A plain client of whichever servers live."""
        urls = self.authenticated_url.split(",")
        client = await nats.connect(
            urls, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_ignore
        )
        try:
            yield client
        finally:
            await client.close()

    async def info(self, client: Client, stream: str) -> StreamInfo | None:
        """What the servers say of a stream; None while they do not answer, or have none."""
        try:
            return await client.jetstream(timeout=0.5).stream_info(stream)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError):
            return None

    async def leader_of(self, client: Client, stream: str) -> ClusteredNats:
        """Wait for a leader of the stream, and return it."""
        leaders: list[ClusteredNats] = []

        async def has_leader() -> bool:
            info = await self.info(client, stream)
            name = info.cluster.leader if info is not None and info.cluster is not None else None
            leaders[:] = [server for server in self.servers if server.server_name == name]
            return bool(leaders)

        await eventually(has_leader, within_seconds=READY_SECONDS, what=f"a leader of {stream}")
        return leaders[0]

    async def lose(self, server: ClusteredNats) -> None:
        """Kill it and delete what it stored; `server.start()` brings it back empty."""
        await server.crash()
        shutil.rmtree(server.store_dir)

    def _add(self, port: int) -> ClusteredNats:
        number = len(self.servers) + 1
        users = self.home / "n1" / "users"
        server = ClusteredNats(self.home / f"n{number}", f"n{number}", users, port)
        self.servers.append(server)
        for member in self.servers:
            member.routes = [f"nats://127.0.0.1:{other.route_port}" for other in self.servers]
        return server


async def _ignore(_: Exception) -> None:
    """A server that is gone is what these tests are about."""


@asynccontextmanager
async def nats_cluster(home: Path, count: int = 3) -> AsyncIterator[NatsCluster]:
    """A running cluster, ended afterwards."""
    cluster = NatsCluster(home, count)
    try:
        await cluster.start()
        yield cluster
    finally:
        with contextlib.suppress(OSError):
            await cluster.stop()
        # nats-py leaves the socket to a server that dies while it logs in to the collector, whose
        # warning would be the failure of whichever test runs then.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
