"""What a node's telemetry agent answers and does: its GPUs, monitorings, bursts, power limits."""

from typing import Annotated
from uuid import UUID

from litestar.params import FromPath, FromQuery, JSONBody, PathParameter, QueryParameter

from schemas.errors import Accepted
from schemas.gateway import endpoints
from schemas.gateway.tokens import Role
from schemas.gateway.views import BurstRequest, MonitoringRequest, PowerLimitRequest
from schemas.gpus.available_gpus import AvailableGpus, ListAvailableGpus
from schemas.telemetry.monitoring import (
    AgentView,
    GetAgent,
    GetGpu,
    GpuDetail,
    MonitoringView,
    StartMonitoring,
    StopMonitoring,
)
from schemas.telemetry.readings import GetSnapshot, GpuSampled, SetBurst, SetPowerLimit
from services.gateway.domain.visibility import visible_detail
from services.gateway.routes.common import (
    Caller,
    IdempotencyKey,
    Node,
    TheGateway,
    command_id_of,
    id_for,
    route,
    whole_number,
)
from services.gateway.routes.gpus.reservations import require_reservation


@route(endpoints.GET_AGENT)
async def get_agent(node_id: Node, gateway: TheGateway) -> AgentView:
    """Say whether and how the node's GPUs can be read."""
    return await gateway.query_node(GetAgent(node_id=node_id), AgentView)


@route(endpoints.LIST_AVAILABLE_GPUS)
async def list_available_gpus(
    node_id: Node,
    gateway: TheGateway,
    min_memory_mb: Annotated[int | None, whole_number(0)] = None,
    max_utilization: Annotated[float, QueryParameter(ge=0, le=100)] = 50.0,
    use_cache: FromQuery[bool] = True,
) -> AvailableGpus:
    """The node's GPUs of which a request would be granted any one now, best score first.

    Without `min_memory_mb` however much of their memory is free; `use_cache=false` has them read
    anew first.
    """
    if not use_cache:
        await gateway.query_node(GetSnapshot(node_id=node_id, use_cache=False), GpuSampled)
    query = ListAvailableGpus(
        node_id=node_id, min_memory_mb=min_memory_mb, max_utilization_percent=max_utilization
    )
    return await gateway.query_node(query, AvailableGpus)


@route(endpoints.GET_GPU)
async def get_gpu(
    node_id: Node,
    index: Annotated[int, whole_number(0, parameter=PathParameter)],
    gateway: TheGateway,
    identity: Caller,
    use_cache: FromQuery[bool] = True,
) -> GpuDetail:
    """Return one GPU by its index in the node: all facts, and the newest reading."""
    query = GetGpu(node_id=node_id, index=index, use_cache=use_cache)
    return visible_detail(await gateway.query_node(query, GpuDetail), identity)


@route(endpoints.START_MONITORING)
async def start_monitoring(
    node_id: Node,
    data: JSONBody[MonitoringRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> MonitoringView:
    """Watch the node's GPUs; DELETE tells what they did."""
    query = StartMonitoring(
        node_id=node_id,
        monitoring_id=data.monitoring_id or id_for(command_id_of(idempotency_key, identity)),
        interval_seconds=data.interval_seconds,
        max_seconds=data.max_seconds,
    )
    return await gateway.query_node(query, MonitoringView)


@route(endpoints.STOP_MONITORING)
async def stop_monitoring(
    node_id: Node, monitoring_id: FromPath[UUID], gateway: TheGateway
) -> MonitoringView:
    """End a monitoring; minimum, maximum and mean of what was read. For ten minutes again."""
    query = StopMonitoring(node_id=node_id, monitoring_id=monitoring_id)
    return await gateway.query_node(query, MonitoringView)


@route(endpoints.SET_BURST)
async def set_burst(
    node_id: Node,
    data: JSONBody[BurstRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Have the node sample up to ten times per second for a while."""
    return await gateway.send(
        SetBurst(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            interval_seconds=data.interval_seconds,
            duration_seconds=data.duration_seconds,
            experiment_id=data.experiment_id,
        )
    )


@route(endpoints.SET_POWER_LIMIT)
async def set_power_limit(
    node_id: Node,
    data: JSONBody[PowerLimitRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Cap a GPU's power, lock its clock, or both, until its reservation ends.

    Null for both takes both back. Without a reservation until an admin does, or the agent stops.
    """
    if data.reservation_id is None:
        identity.require_role(Role.ADMIN)
    else:
        await require_reservation(gateway, identity, data.reservation_id)
    return await gateway.send(
        SetPowerLimit(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            device_uuid=data.device_uuid,
            power_limit_w=data.power_limit_w,
            sm_clock_mhz=data.sm_clock_mhz,
            reservation_id=data.reservation_id,
        )
    )
