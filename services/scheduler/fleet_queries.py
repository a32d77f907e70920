"""Questions about devices and nodes: who holds what, and where Kubernetes had better place."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.scheduler import DeviceState
from schemas.scheduler_views import (
    AllocationMap,
    ClusterGpu,
    ClusterStatus,
    DeviceAllocation,
    GetAllocationMap,
    GetClusterStatus,
    GetNodeSummaries,
    NodeAllocation,
    NodeSelection,
    NodeSummaries,
    SelectNode,
)
from services.scheduler import changes, store
from services.scheduler.domain.fleet import Device, Fleet, Host
from services.scheduler.domain.node_selection import (
    cluster_gpu_status,
    find_best_node,
    node_gpu_summaries,
)
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.messages import fitting
from services.scheduler.mirror import node_from
from shared.database import Database
from shared.errors import RefusedError

NOBODY: Final = UUID(int=0)

Owners = Mapping[UUID, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FleetQueries:
    """Handlers of the queries about what there is."""

    database: Database
    reader: FleetReader

    async def allocation_map(self, query: GetAllocationMap) -> AllocationMap:
        """Who holds what, node by node."""
        reader = self.reader
        async with self.database.transaction() as connection:
            nodes = await store.nodes(connection, 0)
            fleet = await reader.read(connection)
            holders = {d.holder for ds in fleet.nodes.values() for d in ds if d.holder is not None}
            owners = await store.owners(connection, holders)
        if query.node_id is not None and query.node_id not in {node.node_id for node in nodes}:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no node {query.node_id}", path="$.node_id")
        after = query.after_node_id
        wanted = [
            NodeAllocation(
                node_id=node.node_id,
                source=node.source,
                fresh=reader.readings.is_fresh(node.node_id),
                devices=_allocations(fleet, node.node_id, owners),
            )
            for node in sorted(nodes, key=lambda known: known.node_id)
            if query.node_id in (None, node.node_id) and (after is None or node.node_id > after)
        ]
        told = fitting(wanted)
        return AllocationMap(
            nodes=tuple(told),
            next_after_node_id=told[-1].node_id if told and len(told) < len(wanted) else None,
        )

    async def cluster_status(self, query: GetClusterStatus) -> ClusterStatus:
        """Every GPU as node selection sees it, as many whole nodes as fit into an answer."""
        found = await self._gpus()
        after = query.after_node_id
        by_node = [
            (node_name, tuple(gpus))
            for node_name, gpus in groupby(found, key=lambda gpu: gpu.node_name)
            if after is None or node_name > after
        ]
        told = fitting(by_node)
        return ClusterStatus(
            gpus=tuple(gpu for _, gpus in told for gpu in gpus),
            next_after_node_id=told[-1][0] if told and len(told) < len(by_node) else None,
        )

    async def node_summaries(self, query: GetNodeSummaries) -> NodeSummaries:
        """The GPUs summed up by node."""
        gpus = await self._gpus()
        return NodeSummaries(
            nodes=node_gpu_summaries(gpus, query.utilization_threshold, query.memory_threshold)
        )

    async def select_node(self, query: SelectNode) -> NodeSelection:
        """The node with the most idle GPUs."""
        summaries = node_gpu_summaries(
            await self._gpus(), query.utilization_threshold, query.memory_threshold
        )
        return find_best_node(summaries, query.required_gpus)

    async def _gpus(self) -> list[ClusterGpu]:
        async with self.database.transaction() as connection:
            fleet = await self.reader.read(connection)
            nodes = [node_from(row) for row in await changes.read_nodes(connection)]
        known = replace(fleet, hosts={node.node_id: Host(node=node) for node in nodes})
        return cluster_gpu_status(known, self.reader.readings.temperatures())


def _allocations(fleet: Fleet, node_id: str, owners: Owners) -> tuple[DeviceAllocation, ...]:
    return tuple(_allocation(device, owners) for device in fleet.nodes.get(node_id, ()))


def _allocation(device: Device, owners: Owners) -> DeviceAllocation:
    namespace, holder = owners.get(device.holder or NOBODY, (None, None))
    is_taken = device.state in (DeviceState.HELD, DeviceState.QUARANTINED)
    return DeviceAllocation(
        node_id=device.node_id,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        state=device.state,
        allocated=1.0 if is_taken else 0.0,
        health=device.health,
        simulated=device.simulated,
        memory_total_mb=device.total_mb,
        reservation_id=device.holder,
        namespace=namespace,
        holder=holder,
    )
