"""What is published of a view, and what pages of it hold while it changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from schemas.cluster.nodes import ClusterChanged, ClusterNode, ClusterView, GetCluster
from services.cluster.domain.cluster_state import ClusterState, GpuNames
from services.cluster.publisher import ViewPublisher
from services.cluster.watching import ClusterWatch
from shared.kubernetes.objects.nodes import Node
from shared.messaging.bus import Bus
from shared.testing import eventually

GPU = "nvidia.com/gpu"
CLUSTER = "cluster-1"


@dataclass
class FakeWatch:
    """Stands for what watches the cluster."""

    is_complete: bool = True
    is_listing: bool = False
    detail: str = ""


@dataclass
class FakeBus:
    """Holds what is published."""

    published: list[ClusterChanged] = field(default_factory=list)

    async def publish_live(self, message: ClusterChanged) -> None:
        self.published.append(message)


def node(name: str, gpus: int = 8) -> Node:
    quantities = {GPU: str(gpus)}
    given: Any = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": quantities, "allocatable": quantities},
    }
    return msgspec.convert(given, Node)


class World:
    def __init__(self) -> None:
        self.bus, self.watch = FakeBus(), FakeWatch()
        self.state = ClusterState(GpuNames((GPU,), frozenset()), lambda _: None, str)
        self.publisher = ViewPublisher(cast(Bus, self.bus), CLUSTER, self.state)

    def names(self) -> list[str]:
        return [each.name for message in self.bus.published for each in message.nodes]

    def page(self, after: str | None = None) -> ClusterView:
        return self.publisher.view(GetCluster(cluster_id=CLUSTER, after_name=after), "v1.34.4")

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.publisher.run(cast(ClusterWatch, self.watch)))
        try:
            yield
        finally:
            task.cancel()


async def test_first_view_waits_for_all_answers() -> None:
    world = World()
    world.watch = FakeWatch(is_complete=False, is_listing=True, detail="pods: is being listed")
    world.state.apply_node(node("a"))
    async with world.publishing():
        world.publisher.mark_changed()
        await eventually(lambda: bool(world.bus.published))
        assert (world.names(), world.bus.published[0].is_complete) == ([], False)

        world.watch.is_complete, world.watch.is_listing, world.watch.detail = True, False, ""
        world.publisher.mark_changed()
        await eventually(lambda: world.names() == ["a"])

    assert world.bus.published[-1].is_complete


async def test_incomplete_view_is_published_at_once() -> None:
    world = World()
    async with world.publishing():
        world.publisher.mark_changed()
        await eventually(lambda: bool(world.bus.published))

        world.watch.is_complete, world.watch.detail = False, "pods: Forbidden"
        world.publisher.mark_changed()
        await eventually(lambda: world.bus.published[-1].detail == "pods: Forbidden")

    assert [each.revision for each in world.bus.published] == [1, 2]


async def test_pages_share_a_revision_messages_follow() -> None:
    world = World()
    for number in range(5_000):
        world.state.apply_node(node(f"node-{number:04}-{'x' * 200}"))
    async with world.publishing():
        world.publisher.mark_changed()
        await eventually(lambda: len(world.names()) == 5_000)

        first = world.page()
        changed = world.page().nodes[-1].name
        world.state.apply_node(node(changed, gpus=4))
        world.publisher.mark_changed()
        await eventually(lambda: len(world.names()) == 5_001)
        nodes: dict[str, ClusterNode] = {each.name: each for each in first.nodes}
        page = first
        while page.next_after_name is not None:
            page = world.page(page.next_after_name)
            assert page.revision == first.revision
            nodes |= {each.name: each for each in page.nodes}

    assert len(nodes) == 5_000
    assert nodes[changed].gpus[0].capacity == 8
    (later,) = [each for each in world.bus.published if each.revision > first.revision]
    assert later.nodes[0].gpus[0].capacity == 4
    assert world.page().revision == later.revision
