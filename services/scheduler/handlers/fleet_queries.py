"""Queries about devices and nodes: what holds them, and where Kubernetes had better place."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from msgspec.structs import replace

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
    NodeGpuSummary,
    NodeSelection,
    NodeSummaries,
    SelectNode,
)
from services.scheduler.domain.model.fleet import Device, Fleet, Host, Node
from services.scheduler.domain.model.inputs import NO_RESERVATION
from services.scheduler.domain.node_selection import (
    cluster_gpu_status,
    find_best_node,
    node_gpu_summaries,
)
from services.scheduler.domain.placement.eligibility import state_of, state_reasons
from services.scheduler.leader.engine_feed import node_from
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.ledger import change_feed, node_rows, reservation_rows
from shared.messaging.paging import fitting
from shared.postgres.database import Connection, Database

Owners = Mapping[UUID, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class FleetQueries:
    """Handlers of the queries about the fleet."""

    database: Database
    reader: FleetReader

    async def allocation_map(self, query: GetAllocationMap) -> AllocationMap:
        """Devices and their holders, node by node."""
        reader = self.reader
        async with self.database.transaction() as connection:
            if query.node_id is not None:
                await node_rows.check_known(connection, query.node_id)
            nodes = await node_rows.statuses(connection)
            fleet = await self._fleet(connection)
            holders = {d.holder for ds in fleet.nodes.values() for d in ds if d.holder is not None}
            owners = await reservation_rows.owners(connection, holders)
        after = query.after_node_id
        wanted = [
            NodeAllocation(
                node_id=node.node_id,
                source=node.source,
                fresh=reader.readings.is_fresh(node.node_id),
                devices=tuple(
                    _allocation(device, fleet.node(node.node_id), owners)
                    for device in fleet.nodes.get(node.node_id, ())
                ),
                cordon=reader.cordon(node),
                labels=fleet.node(node.node_id).labels,
                admitted=node.admitted,
            )
            for node in sorted(nodes, key=lambda node: node.node_id)
            if query.node_id in (None, node.node_id) and (after is None or node.node_id > after)
        ]
        page = fitting(wanted)
        return AllocationMap(
            nodes=tuple(page),
            next_after_node_id=page[-1].node_id if page and len(page) < len(wanted) else None,
        )

    async def cluster_status(self, query: GetClusterStatus) -> ClusterStatus:
        """Every GPU as node selection sees it, as many whole nodes as fit into a reply."""
        found = await self._gpus()
        after = query.after_node_id
        by_node = [
            (node_name, tuple(gpus))
            for node_name, gpus in groupby(found, key=lambda gpu: gpu.node_name)
            if after is None or node_name > after
        ]
        page = fitting(by_node)
        return ClusterStatus(
            gpus=tuple(gpu for _, gpus in page for gpu in gpus),
            next_after_node_id=page[-1][0] if page and len(page) < len(by_node) else None,
        )

    async def node_summaries(self, query: GetNodeSummaries) -> NodeSummaries:
        """The GPUs summed up by node."""
        return NodeSummaries(nodes=await self._summaries(query))

    async def select_node(self, query: SelectNode) -> NodeSelection:
        """The node with the most idle GPUs."""
        return find_best_node(await self._summaries(query), query.required_gpus)

    async def _summaries(self, query: GetNodeSummaries | SelectNode) -> dict[str, NodeGpuSummary]:
        return node_gpu_summaries(
            await self._gpus(), query.utilization_threshold, query.memory_threshold
        )

    async def _gpus(self) -> list[ClusterGpu]:
        async with self.database.transaction() as connection:
            fleet = await self._fleet(connection)
        return cluster_gpu_status(fleet, self.reader.readings.temperatures())

    async def _fleet(self, connection: Connection) -> Fleet:
        fleet = await self.reader.read(connection)
        nodes = [node_from(row) for row in await change_feed.read_nodes(connection)]
        return replace(fleet, hosts={node.node_id: Host(node=node) for node in nodes})


def _allocation(device: Device, node: Node, owners: Owners) -> DeviceAllocation:
    namespace, holder = owners.get(device.holder or NO_RESERVATION, (None, None))
    state = state_of(device, node)
    is_taken = state in (DeviceState.HELD, DeviceState.QUARANTINED)
    return DeviceAllocation(
        node_id=device.node_id,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        state=state,
        allocated=1.0 if is_taken else 0.0,
        health=device.health,
        simulated=device.simulated,
        memory_total_mb=device.total_mb,
        reservation_id=device.holder,
        namespace=namespace,
        holder=holder,
        reasons=state_reasons(device, node),
        cordon=device.cordon,
    )
