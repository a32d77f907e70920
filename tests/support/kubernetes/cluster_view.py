"""A cluster's adapter under test, and a receiver of what it publishes, as a scheduler would be."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from nats.aio.msg import Msg

from schemas.base import pattern_for
from schemas.cluster.nodes import ClusterChanged, ClusterNode, ClusterView, GetCluster
from services.cluster.app import create_service
from services.cluster.settings import ClusterSettings
from shared.messaging.bus import Bus
from shared.testing import eventually
from tests.support.bus import connected_bus

CLUSTER: Final = "cluster-1"


@dataclass
class ReceivedView:
    """Applies what is published, message by message, from the first on."""

    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    is_complete: bool = False
    detail: str = ""
    revision: int = 0
    details: list[str] = field(default_factory=list)
    changed_at: dict[str, float] = field(default_factory=dict)
    is_gapless: bool = True
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self, message: Msg) -> None:
        change = msgspec.msgpack.decode(message.data, type=ClusterChanged)
        now = time.monotonic()
        self.is_gapless &= change.revision == self.revision + 1
        self.revision = change.revision
        for node in change.nodes:
            self.nodes[node.name] = node
            self.changed_at[node.name] = now
        for name in change.removed:
            del self.nodes[name]
            self.changed_at[name] = now
        self.is_complete, self.detail = change.is_complete, change.detail
        if change.detail not in self.details[-1:]:
            self.details.append(change.detail)
        self.news.set()

    def requested(self) -> dict[str, int]:
        """GPUs of each node that are not free, under all names."""
        return {
            name: sum(each.requested for each in node.gpus) for name, node in self.nodes.items()
        }

    async def until_complete(self, *, within_seconds: float = 30) -> None:
        async def complete() -> bool:
            return self.is_complete

        await eventually(complete, within_seconds=within_seconds, what=f"a view: {self.detail}")


@asynccontextmanager
async def watched_cluster(
    nats_url: str, kubeconfig: Path, **settings: Any
) -> AsyncIterator[ReceivedView]:
    """The view that a running adapter publishes."""
    async with connected_bus(nats_url, "receiver") as bus:
        view = ReceivedView()
        await bus.nats.subscribe(pattern_for(ClusterChanged), cb=view.receive)
        await bus.flush()
        given = {
            "nats_url": nats_url,
            "kubeconfig": str(kubeconfig),
            "node_id": CLUSTER,
            **settings,
        }
        async with create_service(ClusterSettings(**given)).running():
            yield view


async def whole_view(bus: Bus) -> dict[str, ClusterNode]:
    """All pages that the adapter answers."""
    found: dict[str, ClusterNode] = {}
    after: str | None = None
    while True:
        page = await bus.query(GetCluster(cluster_id=CLUSTER, after_name=after), ClusterView)
        found |= {node.name: node for node in page.nodes}
        after = page.next_after_name
        if after is None:
            return found
