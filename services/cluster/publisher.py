"""Publishes what changed in the view, and answers with all of it."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from schemas.cluster.nodes import ClusterChanged, ClusterNode, ClusterView, GetCluster
from services.cluster.domain.cluster_state import ClusterState
from services.cluster.watching import ClusterWatch
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.messaging.paging import fitting
from shared.waiting import wait_for

HEARTBEAT_SECONDS: Final = 5.0
GATHER_SECONDS: Final = 0.02  # what changes meanwhile goes together


class _FirstPage(NamedTuple):
    """The view as it was when a client began to read its pages."""

    revision: int
    is_complete: bool
    detail: str
    nodes: list[ClusterNode]


class ViewPublisher:
    """Numbers the messages. What `view` answers is what its revision's message has brought."""

    def __init__(self, bus: Bus, cluster_id: str, state: ClusterState) -> None:
        self.boot_id: UUID = new_id()
        self._bus = bus
        self._cluster_id = cluster_id
        self._state = state
        self._revision = 0
        self._published: dict[str, ClusterNode] = {}
        self._completeness = (False, "")
        self._changed = asyncio.Event()
        self._published_at = 0.0
        self._first_page: _FirstPage | None = None

    def mark_changed(self) -> None:
        """There may be something to publish."""
        self._changed.set()

    async def run(self, watch: ClusterWatch) -> None:
        """Publish until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due_at = self._published_at + HEARTBEAT_SECONDS
            await wait_for(self._changed, max(0.0, due_at - clock()))
            self._changed.clear()
            is_due = clock() >= due_at
            completeness = (watch.is_complete, watch.detail)
            if completeness != self._completeness:
                self._completeness, is_due = completeness, True
            if not watch.is_listing:  # a first view comes in one piece, not kind by kind
                is_due = not await self._publish_changes() and is_due
            if is_due:
                await self._publish((), ())
            await asyncio.sleep(GATHER_SECONDS)

    def view(self, query: GetCluster, kubernetes_version: str) -> ClusterView:
        """Pages after a first one are of its revision: readings alone would change it meanwhile."""
        if query.after_name is None or self._first_page is None:
            nodes = [self._published[name] for name in sorted(self._published)]
            self._first_page = _FirstPage(self._revision, *self._completeness, nodes)
        of = self._first_page
        after_name = query.after_name or ""
        remaining_nodes = of.nodes[bisect_right(of.nodes, after_name, key=lambda node: node.name) :]
        page = tuple(fitting(remaining_nodes))
        return ClusterView(
            cluster_id=self._cluster_id,
            boot_id=self.boot_id,
            revision=of.revision,
            nodes=page,
            is_complete=of.is_complete,
            detail=of.detail,
            kubernetes_version=kubernetes_version,
            next_after_name=page[-1].name if len(page) < len(remaining_nodes) else None,
        )

    async def _publish_changes(self) -> bool:
        """Publish what has changed; return whether anything had."""
        nodes, removed = self._state.take_changes()
        for page in _pages(nodes):
            await self._publish(page, ())
        if removed:
            await self._publish((), tuple(removed))
        return bool(nodes or removed)

    async def _publish(self, nodes: tuple[ClusterNode, ...], removed: tuple[str, ...]) -> None:
        self._revision += 1
        self._published_at = asyncio.get_running_loop().time()
        self._published |= {node.name: node for node in nodes}
        for name in removed:
            del self._published[name]
        is_complete, detail = self._completeness
        await self._bus.publish_live(
            ClusterChanged(
                observed_at=utcnow(),
                cluster_id=self._cluster_id,
                boot_id=self.boot_id,
                revision=self._revision,
                nodes=nodes,
                removed=removed,
                is_complete=is_complete,
                detail=detail,
            )
        )


def _pages(nodes: list[ClusterNode]) -> Iterator[tuple[ClusterNode, ...]]:
    while nodes:
        page = fitting(nodes) or nodes[:1]
        yield tuple(page)
        nodes = nodes[len(page) :]
