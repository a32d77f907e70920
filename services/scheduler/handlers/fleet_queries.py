"""Queries about devices and nodes: what holds them, and where Kubernetes had better place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from msgspec.structs import replace

from schemas.cluster.node_selection import (
    ClusterGpu,
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeGpuSummary,
    NodeSelection,
    NodeSummaries,
    SelectNode,
)
from schemas.gpus.gpu_request import WHOLE, ClusterRequest, GpuRequest
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, NamespaceUse
from schemas.scheduler.views import (
    AllocationMap,
    DeviceAllocation,
    DeviceHolder,
    GetAllocationMap,
    NodeAllocation,
)
from schemas.telemetry.readings import Source
from services.scheduler.domain.clusters.choice import ClusterFleet, selection, thresholds_of
from services.scheduler.domain.clusters.gpu_status import gpu_status
from services.scheduler.domain.clusters.node_gpus import Thresholds
from services.scheduler.domain.model.fleet import Device, Fleet, Host, Node, Part
from services.scheduler.domain.model.inputs import NO_RESERVATION
from services.scheduler.domain.node_selection import (
    cluster_gpu_status,
    find_best_node,
    node_gpu_summaries,
)
from services.scheduler.domain.placement.eligibility import state_of, state_reasons
from services.scheduler.intake.validation import check_wanted
from services.scheduler.leader.cluster_decisions import read_fleet
from services.scheduler.leader.engine_feed import node_from
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.leader.query_engine import QueryEngine
from services.scheduler.ledger import change_feed
from services.scheduler.ledger.rows import holder_rows, node_rows, quota_rows
from services.scheduler.ledger.rows.holder_rows import Owner
from services.scheduler.ledger.rows.node_rows import NodeStatus
from services.scheduler.observations.cluster_views import ClusterViews
from shared.messaging.paging import fitting
from shared.postgres.database import Connection, Database

Owners = Mapping[UUID, Owner]


@dataclass(frozen=True, slots=True)
class FleetQueries:
    """Handlers of the queries about the fleet."""

    database: Database
    reader: FleetReader
    query_engine: QueryEngine
    clusters: ClusterViews

    async def allocation_map(self, query: GetAllocationMap) -> AllocationMap:
        """Devices and their holders, node by node."""
        reader = self.reader
        async with self.database.transaction() as connection:
            if query.node_id is not None:
                await node_rows.check_known(connection, query.node_id)
            nodes = await node_rows.statuses(connection)
            fleet = await self._fleet(connection)
            devices = [
                device for devices_of_node in fleet.nodes.values() for device in devices_of_node
            ]
            holders = {device.holder for device in devices if device.holder is not None}
            holders |= {part.holder for device in devices for part in device.parts}
            owners = await holder_rows.owners(connection, holders)
        after_node_id = query.after_node_id
        allocations = [
            NodeAllocation(
                node_id=node.node_id,
                source=node.source,
                fresh=self._is_fresh(node),
                devices=tuple(
                    _allocation(device, fleet.node(node.node_id), owners)
                    for device in fleet.nodes.get(node.node_id, ())
                ),
                cordon=reader.cordon(node),
                labels=fleet.node(node.node_id).labels,
                admitted=node.admitted,
            )
            for node in sorted(nodes, key=lambda node: node.node_id)
            if query.node_id in (None, node.node_id)
            and (after_node_id is None or node.node_id > after_node_id)
        ]
        page = fitting(allocations)
        return AllocationMap(
            nodes=tuple(page),
            next_after_node_id=page[-1].node_id if page and len(page) < len(allocations) else None,
        )

    async def namespaces(self, query: ListNamespaces) -> NamespaceList:  # noqa: ARG002  # always all
        """List every namespace that has rules, holds something or waits."""
        async with self.query_engine.moment() as moment:
            shares = (
                {
                    e.namespace: moment.engine.dominant_share(e.namespace)
                    for e in moment.engine.waiting
                }
                if moment.engine.is_contended
                else {}
            )
        async with self.database.transaction() as connection:
            rows = await quota_rows.uses(connection)
        uses = [
            NamespaceUse(
                namespace=row["namespace"],
                gpus=row["held"] / WHOLE,
                gpu_limit=row["gpu_limit"] / WHOLE if row["gpu_limit"] is not None else None,
                queued=row["queued"],
                guaranteed_gpus=row["guaranteed"] / WHOLE,
                weight=row["weight"],
                used_share=shares.get(row["namespace"]),
            )
            for row in rows
        ]
        return NamespaceList(namespaces=tuple(fitting(uses)))

    async def cluster_status(self, query: GetClusterStatus) -> ClusterStatus:
        """Return every GPU as node selection sees it, as many whole nodes as fit into a reply."""
        agent_gpus, clusters = await self._fleets()
        merged_gpus = gpu_status(agent_gpus, clusters)
        after_node_id = query.after_node_id
        by_node = [
            (node_name, tuple(gpus))
            for node_name, gpus in groupby(merged_gpus, key=lambda gpu: gpu.node_name)
            if after_node_id is None or node_name > after_node_id
        ]
        page = fitting(by_node)
        return ClusterStatus(
            gpus=tuple(gpu for _, gpus in page for gpu in gpus),
            next_after_node_id=page[-1][0] if page and len(page) < len(by_node) else None,
        )

    async def node_summaries(self, query: GetNodeSummaries) -> NodeSummaries:
        """The GPUs summed up by node."""
        agent_gpus, clusters = await self._fleets()
        thresholds = Thresholds(query.utilization_threshold, query.memory_threshold)
        summary_by_node = clusters.summaries(thresholds)
        outside = [gpu for gpu in gpu_status(agent_gpus, clusters) if gpu.cluster_id is None]
        return NodeSummaries(
            nodes=dict(sorted((_summaries(outside, thresholds) | summary_by_node).items()))
        )

    async def select_node(self, query: SelectNode) -> NodeSelection:
        """The node that a deployment would get now, by the very choice that decides it; without any
        cluster that of ours with the most idle GPUs.
        """
        request = _request_of(query)
        check_wanted(request)
        agent_gpus, clusters = await self._fleets()
        if clusters.clusters:
            return selection(clusters.choose(request))
        thresholds = thresholds_of(request.cluster or ClusterRequest())
        return find_best_node(_summaries(agent_gpus, thresholds), request.gpus)

    def _is_fresh(self, node: NodeStatus) -> bool:
        if node.source is Source.KUBERNETES:
            return self.clusters.is_fresh(node.node_id)
        return self.reader.readings.is_fresh(node.node_id)

    async def _fleets(self) -> tuple[list[ClusterGpu], ClusterFleet]:
        """The GPUs that telemetry agents report, and the clusters."""
        async with self.database.transaction() as connection:
            fleet = await self._fleet(connection)
            clusters = await read_fleet(connection, self.clusters)
        fresh_devices = {
            node_id: tuple(map(self._with_shared_use, devices))
            for node_id, devices in fleet.nodes.items()
        }
        temperatures = self.reader.readings.temperatures()
        return cluster_gpu_status(replace(fleet, nodes=fresh_devices), temperatures), clusters

    def _with_shared_use(self, device: Device) -> Device:
        """Return the device with the use of all its parts: for people, no decision reads it."""
        newest = self.reader.readings.newest(device.node_id) if device.parts else None
        return device if newest is None else replace(device, reading=newest.gpus.get(device.uuid))

    async def _fleet(self, connection: Connection) -> Fleet:
        fleet = await self.reader.read(connection)
        nodes = [node_from(row) for row in await change_feed.read_nodes(connection)]
        return replace(fleet, hosts={node.node_id: Host(node=node) for node in nodes})


def _request_of(query: SelectNode) -> GpuRequest:
    if query.request is not None:
        return replace(query.request, cluster=query.request.cluster or ClusterRequest())
    cluster = ClusterRequest(
        utilization_threshold_percent=query.utilization_threshold,
        memory_threshold_percent=query.memory_threshold,
    )
    return GpuRequest(gpus=query.required_gpus, cluster=cluster)


def _summaries(gpus: Sequence[ClusterGpu], thresholds: Thresholds) -> dict[str, NodeGpuSummary]:
    return node_gpu_summaries(gpus, thresholds.utilization_percent, thresholds.memory_percent)


def _allocation(device: Device, node: Node, owners: Owners) -> DeviceAllocation:
    owner = owners.get(device.holder or NO_RESERVATION)
    parts = device.parts or ((Part(device.holder, WHOLE),) if device.holder is not None else ())
    return DeviceAllocation(
        node_id=device.node_id,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        state=state_of(device, node),
        allocated=sum(part.hundredths for part in parts) / WHOLE,
        health=device.health,
        simulated=device.simulated,
        memory_total_mb=device.total_mb,
        reservation_id=device.holder,
        namespace=owner.namespace if owner is not None else None,
        holder=owner.holder if owner is not None else None,
        reasons=state_reasons(device, node),
        cordon=device.cordon,
        kind="mig" if device.parent_uuid is not None else "gpu",
        mig_profile=device.mig_profile,
        holders=tuple(_holder(part, owners) for part in parts),
    )


def _holder(part: Part, owners: Owners) -> DeviceHolder:
    shares = part.hundredths / WHOLE
    owner = owners.get(part.holder)
    if owner is None:
        return DeviceHolder(reservation_id=part.holder, shares=shares)
    return DeviceHolder(reservation_id=part.holder, shares=shares, **owner._asdict())
