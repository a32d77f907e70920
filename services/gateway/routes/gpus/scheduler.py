"""The scheduler beside reservations: the cluster, what if, and what was decided."""

from datetime import datetime, timedelta
from typing import Annotated, Final
from uuid import UUID

from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.cluster.node_selection import (
    ClusterGpu,
    ClusterStatus,
    GetClusterStatus,
    GetNodeSummaries,
    NodeSummaries,
)
from schemas.gateway import endpoints
from schemas.gateway.views import ClusterDevice, ClusterDeviceList
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.policy import PolicyTrial, TriedPolicy, TryPolicy
from schemas.scheduler.views import (
    AvailabilityView,
    DecisionList,
    ListDecisions,
    Replay,
    ReplayDecisions,
    WhatIf,
)
from services.gateway.routes.common import (
    AnyPageSize,
    Caller,
    Cursor,
    DevicePlace,
    GpuPlace,
    NodePlace,
    PageSize,
    TheGateway,
    page_after,
    route,
    whole_number,
)
from services.gateway.routes.gpus.reservations import require_readable
from shared.clock import utcnow
from shared.messaging.paging import place_at

REPLAY_SECONDS: Final = 60.0
TRIAL_SECONDS: Final = 120.0
WEEK: Final = timedelta(days=7)

Threshold = Annotated[float, QueryParameter(ge=0, le=100)]
DecisionId = Annotated[int, whole_number(0)]


@route(endpoints.WHAT_IF)
async def what_if(
    reservation_id: FromPath[UUID],
    data: JSONBody[GpuRequest],
    gateway: TheGateway,
    identity: Caller,
) -> AvailabilityView:
    """Say whether a waiting reservation would be granted now if it had asked for this instead."""
    await require_readable(gateway, identity, reservation_id)
    return await gateway.bus.query(
        WhatIf(reservation_id=reservation_id, request=data, names_of=identity.names_of),
        AvailabilityView,
    )


@route(endpoints.GET_CLUSTER_STATUS)
async def get_cluster_status(
    gateway: TheGateway, limit: AnyPageSize = None, cursor: Cursor = None
) -> ClusterStatus:
    """List every GPU of every node, as node selection sees it."""
    place = place_at(cursor, GpuPlace)
    pages = gateway.pages(GetClusterStatus(), ClusterStatus, "node_id")
    gpus = [gpu async for page in pages for gpu in page.gpus]
    page, next_cursor = page_after(gpus, _place, place, limit)
    return ClusterStatus(gpus=page, next_cursor=next_cursor)


def _place(gpu: ClusterGpu) -> GpuPlace:
    return GpuPlace(gpu.node_name, gpu.gpu_index, gpu.gpu_uuid or gpu.cluster_id or "")


@route(endpoints.GET_NODE_SUMMARIES)
async def get_node_summaries(
    gateway: TheGateway,
    utilization_threshold: Threshold = 30.0,
    memory_threshold: Threshold = 50.0,
    limit: AnyPageSize = None,
    cursor: Cursor = None,
) -> NodeSummaries:
    """GPUs summed up by node; idle are those below both thresholds."""
    query = GetNodeSummaries(
        utilization_threshold=utilization_threshold, memory_threshold=memory_threshold
    )
    place = place_at(cursor, NodePlace)
    nodes = (await gateway.bus.query(query, NodeSummaries)).nodes
    names, next_cursor = page_after(sorted(nodes), NodePlace, place, limit)
    return NodeSummaries(nodes={name: nodes[name] for name in names}, next_cursor=next_cursor)


@route(endpoints.LIST_CLUSTER_DEVICES)
async def list_cluster_devices(
    gateway: TheGateway, limit: AnyPageSize = None, cursor: Cursor = None
) -> ClusterDeviceList:
    """Custom devices that ConfigMaps of clusters define, with what an experiment gets of them."""
    place = place_at(cursor, DevicePlace)
    devices = {
        ClusterDevice(cluster_id=cluster_id, definition=definition)
        for cluster_id, reported in gateway.live.executors.items()
        for runtime in reported.runtimes
        for definition in runtime.devices
    }
    page, next_cursor = page_after(sorted(devices, key=_device_place), _device_place, place, limit)
    return ClusterDeviceList(devices=page, next_cursor=next_cursor)


def _device_place(device: ClusterDevice) -> DevicePlace:
    definition = device.definition
    return DevicePlace(device.cluster_id, definition.key, definition.custom_name)


@route(endpoints.LIST_DECISIONS)
async def list_decisions(
    gateway: TheGateway,
    after_id: DecisionId = 0,
    reservation_id: FromQuery[UUID | None] = None,
    limit: PageSize = 100,
    before_id: Annotated[int | None, whole_number(0)] = None,
) -> DecisionList:
    """Recorded decisions with what they were made on, oldest first; with `before_id` newest first.
    For admins.
    """
    query = ListDecisions(
        after_id=after_id, reservation_id=reservation_id, limit=limit, before_id=before_id
    )
    return await gateway.bus.query(query, DecisionList)


@route(endpoints.TRY_POLICY)
async def try_policy(
    gateway: TheGateway,
    policy: FromQuery[TriedPolicy],
    since_at: FromQuery[datetime | None] = None,
) -> PolicyTrial:
    """Replay recorded requests, by default of a week, under another policy. For admins."""
    query = TryPolicy(policy=policy, since_at=since_at or utcnow() - WEEK)
    return await gateway.bus.query(query, PolicyTrial, timeout_seconds=TRIAL_SECONDS)


@route(endpoints.REPLAY_DECISIONS)
async def replay_decisions(
    gateway: TheGateway,
    from_id: Annotated[int | None, whole_number(0)] = None,
    reservation_id: FromQuery[UUID | None] = None,
    limit: PageSize = 100,
) -> Replay:
    """Recorded decisions, decided again: whether each comes out the same. For admins."""
    query = ReplayDecisions(from_id=from_id, reservation_id=reservation_id, limit=limit)
    return await gateway.bus.query(query, Replay, timeout_seconds=REPLAY_SECONDS)
