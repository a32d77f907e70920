"""A cluster of nats-servers whose routes to each other can be held up."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.history.links import Link
from tests.support.nats_cluster import NatsCluster

# Where servers tell each other to connect, beside the routes that they are given: nowhere.
NOWHERE = 'advertise: "127.0.0.1:9"'


@dataclass
class SplitBus:
    """`links` by the names of the server that connects and the one that is connected to."""

    cluster: NatsCluster
    links: dict[tuple[str, str], Link] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [server.server_name for server in self.cluster.servers]

    def isolate(self, name: str) -> None:
        """Let no server hear that one, nor it any other."""
        for pair, link in self.links.items():
            if name in pair:
                link.hold_up()

    def heal(self) -> None:
        for link in self.links.values():
            link.let_through()


@asynccontextmanager
async def split_bus(home: Path) -> AsyncIterator[SplitBus]:
    """Three servers, running, that reach each other by links alone."""
    bus = SplitBus(NatsCluster(home))
    async with AsyncExitStack() as stack:
        for server in bus.cluster.servers:
            server.more = NOWHERE
            routes = [f"nats://127.0.0.1:{server.route_port}"]
            for other in bus.cluster.servers:
                if other is not server:
                    link = Link(f"nats://127.0.0.1:{other.route_port}")
                    stack.push_async_callback(link.stop)
                    routes.append(await link.start())
                    bus.links[server.server_name, other.server_name] = link
            server.routes = routes
        stack.push_async_callback(bus.cluster.stop)
        await bus.cluster.start()
        yield bus
