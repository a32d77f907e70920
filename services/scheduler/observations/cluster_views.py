"""What Kubernetes clusters report of their nodes, whole or not at all.

A view is queried once and updated by the messages that follow. After a missed one it is unknown
until it is queried again: what is not known to be whole is not decided on.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from schemas.base import NodeId
from schemas.cluster.nodes import (
    ClusterChanged,
    ClusterGpuReading,
    ClusterNode,
    ClusterView,
    GetCluster,
    ReadingsSource,
)
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.clusters.choice import Cluster
from services.scheduler.domain.clusters.divided import doubt_units
from services.scheduler.domain.clusters.node_gpus import (
    NO_METRICS,
    STALE,
    GpuLoad,
    NodeLoad,
)
from services.scheduler.domain.clusters.vanished import hold_vanished
from services.scheduler.domain.model.fleet import Reading
from services.scheduler.domain.node_selection import mean_of_known
from services.scheduler.observations.latest_readings import LatestReadings, NodeReading
from services.scheduler.observations.node_liveness import NodeLiveness
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.bus import Bus

FRESH_SECONDS: Final = 15.0  # a cluster reports every 5 s
READINGS_SECONDS: Final = 60.0  # exporters are read every 15 or 30 s
PENDING: Final = 1_000
TRIES: Final = 10


@dataclass(slots=True)
class _View:
    """`nodes` None: not known. `pending` came while the view was being queried."""

    received_at_seconds: float
    boot_id: UUID | None = None
    revision: int = 0
    nodes: dict[str, ClusterNode] | None = None
    is_complete: bool = False
    detail: str = ""
    is_queried: bool = False
    pending: deque[ClusterChanged] = field(default_factory=lambda: deque(maxlen=PENDING))
    loads: dict[str, tuple[object, NodeLoad]] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterViews:
    """Every scheduler has its own. `register` records that there is such a cluster, `registered`
    are those on record.
    """

    bus: Bus
    readings: LatestReadings
    liveness: NodeLiveness
    register: Callable[[NodeId], Awaitable[None]]
    registered: Callable[[], Awaitable[Iterable[NodeId]]]
    clock: Callable[[], float] = time.monotonic
    _views: dict[NodeId, _View] = field(default_factory=dict)
    _to_query: asyncio.Queue[NodeId] = field(default_factory=asyncio.Queue)
    _subscribers: list[Callable[[], None]] = field(default_factory=list)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever a cluster may serve what it could not before."""
        self._subscribers.append(on_change)

    async def observe(self, message: ClusterChanged) -> None:
        """Apply a change; query everything where one is missing."""
        cluster_id, now = message.cluster_id, self.clock()
        self.liveness.record_agent(cluster_id)
        view = self._views.setdefault(cluster_id, _View(received_at_seconds=now))
        was_fresh, view.received_at_seconds = _is_fresh(view, now), now
        for node in message.nodes:
            used = mean_of_known([gpu.utilization_percent for gpu in node.readings])
            self.readings.past_use.record(node.node_id, used, now)
        if not _apply(view, message):
            view.nodes = None
            view.pending.append(message)
            self._query_soon(cluster_id, view)
        elif message.nodes or message.removed or not was_fresh:
            self._publish()

    async def run(self) -> None:
        """Query views until cancelled, at first of every cluster on record; a slow one delays no
        other.
        """
        for cluster_id in await self.registered():
            view = self._views.setdefault(cluster_id, _View(received_at_seconds=self.clock()))
            if view.nodes is None:
                self._query_soon(cluster_id, view)
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._query(await self._to_query.get()))

    def is_fresh(self, cluster_id: NodeId) -> bool:
        """Return True if there is a view that may be decided on."""
        view = self._views.get(cluster_id)
        return view is not None and _blocking_reason(cluster_id, view, self.clock()) is None

    def in_pods(self, cluster_id: NodeId) -> frozenset[UUID] | None:
        """Reservations of which pods are bound; None while that is not known of a cluster."""
        if (view := self._views.get(cluster_id)) is None:
            return frozenset()
        if _blocking_reason(cluster_id, view, self.clock()) is not None:
            return None
        nodes = (view.nodes or {}).values()
        return frozenset(
            reservation_id
            for node in nodes
            for gpus in node.gpus
            for reservation_id in gpus.by_reservation
        )

    def clusters(self, now: datetime) -> list[Cluster]:
        """Return every known cluster, by id; `now` is compared with when GPUs were read."""
        seconds = self.clock()
        return [
            Cluster(
                cluster_id=cluster_id,
                nodes={
                    name: hold_vanished(doubt_units(node, loads[name]), self._pod_uids(node))
                    for name, node in nodes.items()
                },
                loads=loads,
                past_use={
                    node.name: mean
                    for node in nodes.values()
                    if (mean := self.readings.past_use.mean(node.node_id)) is not None
                },
                blocked=_blocking_reason(cluster_id, view, seconds),
            )
            for cluster_id, view in sorted(self._views.items())
            for nodes in (view.nodes or {},)
            for loads in ({name: self._load(view, node, now) for name, node in nodes.items()},)
        ]

    def _load(self, view: _View, node: ClusterNode, now: datetime) -> NodeLoad:
        """Return the load by the agent on the node, else by the cluster's own exporters.

        Both are replaced and never changed, so that what was summed up of one holds while it is the
        same object.
        """
        reading = self.readings.newest(node.node_id)
        is_fresh = reading is not None and self.readings.is_fresh(node.node_id)
        if not is_fresh and node.readings_at is not None:
            if now - node.readings_at > timedelta(seconds=READINGS_SECONDS):
                return STALE
            # An exporter may be told to watch some GPUs alone; from 0 on without a gap, it has all.
            indices = sorted(gpu.index for gpu in node.readings)
            is_all = node.readings_source is ReadingsSource.DCGM and indices == list(
                range(len(indices))
            )
            return _remember(view, node.name, node.readings, is_all=is_all)
        if reading is None:
            return NO_METRICS
        return _remember(view, node.name, reading, is_all=True) if is_fresh else STALE

    def _pod_uids(self, node: ClusterNode) -> frozenset[str] | None:
        """Return the pods that an agent on the node has just seen, None if it does not see all."""
        if not node.vanished or not self.readings.is_fresh(node.node_id):
            return None
        reading = self.readings.newest(node.node_id)
        return reading.pod_uids if reading is not None else None

    def _query_soon(self, cluster_id: NodeId, view: _View) -> None:
        if not view.is_queried:
            view.is_queried = True
            self._to_query.put_nowait(cluster_id)

    async def _query(self, cluster_id: NodeId) -> None:
        view = self._views[cluster_id]
        try:
            first, nodes = await self._read(cluster_id)
            await self.register(cluster_id)
        except (UnavailableError, RefusedError) as error:
            # Its next message has it queried again.
            log.warning("cluster_not_read", cluster_id=cluster_id, error=str(error))
            return
        finally:
            view.is_queried = False
        self.liveness.record_agent(cluster_id)
        view.received_at_seconds = self.clock()
        view.boot_id, view.revision, view.nodes = first.boot_id, first.revision, nodes
        view.is_complete, view.detail = first.is_complete, first.detail
        pending = [change for change in view.pending if change.boot_id == first.boot_id]
        view.pending.clear()
        log.info("cluster_read", cluster_id=cluster_id, nodes=len(nodes), revision=view.revision)
        for message in pending:
            await self.observe(message)
        self._publish()

    async def _read(self, cluster_id: NodeId) -> tuple[ClusterView, dict[str, ClusterNode]]:
        """Read all pages, of one revision."""
        for _ in range(TRIES):
            query = GetCluster(cluster_id=cluster_id)
            first = page = await self.bus.query(query, ClusterView)
            nodes = {node.name: node for node in page.nodes}
            while page.next_after_name is not None:
                query = GetCluster(cluster_id=cluster_id, after_name=page.next_after_name)
                page = await self.bus.query(query, ClusterView)
                if (page.boot_id, page.revision) != (first.boot_id, first.revision):
                    break
                nodes |= {node.name: node for node in page.nodes}
            else:
                return first, nodes
        raise UnavailableError(f"cluster {cluster_id} changes faster than it can be read")

    def _publish(self) -> None:
        for on_change in self._subscribers:
            on_change()


def _apply(view: _View, message: ClusterChanged) -> bool:
    """False if it does not follow what is known."""
    if view.nodes is None or message.boot_id != view.boot_id:
        return False
    if message.revision <= view.revision:
        return True
    if message.revision > view.revision + 1:
        return False
    # A copy: a decision may still read the nodes as they were.
    nodes = view.nodes | {node.name: node for node in message.nodes}
    for name in message.removed:
        nodes.pop(name, None)
        view.loads.pop(name, None)
    view.nodes = nodes
    view.revision = message.revision
    view.is_complete, view.detail = message.is_complete, message.detail
    return True


def _is_fresh(view: _View, now: float) -> bool:
    return now - view.received_at_seconds <= FRESH_SECONDS


def _blocking_reason(cluster_id: NodeId, view: _View, now: float) -> Reason | None:
    if not _is_fresh(view, now):
        why = f"nothing was heard of it for {now - view.received_at_seconds:.0f} s"
    elif view.nodes is None:
        why = "it is being read"
    elif not view.is_complete:
        why = f"it is not complete: {view.detail}"
    else:
        return None
    return Reason(
        code=ReasonCode.AWAITING_CLUSTER,
        message=f"waits for a view of cluster {cluster_id}: {why}",
        node_id=cluster_id,
    )


def _remember(
    view: _View, name: str, of: NodeReading | tuple[ClusterGpuReading, ...], *, is_all: bool
) -> NodeLoad:
    cached_load = view.loads.get(name)
    if cached_load is not None and cached_load[0] is of:
        return cached_load[1]
    if isinstance(of, NodeReading):
        gpus = [_load_of(gpu, uuid in of.in_pods) for uuid, gpu in of.gpus.items()]
    else:
        gpus = [_reported_load(gpu) for gpu in of]
    load = NodeLoad.of(gpus, is_all=is_all)
    view.loads[name] = (of, load)
    return load


def _load_of(gpu: Reading, is_in_pod: bool) -> GpuLoad:  # as GpuLoad has it
    total, free = gpu.memory_total_mb, gpu.memory_free_mb
    used = total - free if total is not None and free is not None else None
    return GpuLoad(gpu.utilization_percent, _percent(used, total), is_in_pod)


def _reported_load(gpu: ClusterGpuReading) -> GpuLoad:
    return GpuLoad(gpu.utilization_percent, _percent(gpu.memory_used_mb, gpu.memory_total_mb))


def _percent(used_mb: int | None, total_mb: int | None) -> float | None:
    return 100.0 * used_mb / total_mb if used_mb is not None and total_mb else None
