"""GPUs and nodes: the latest readings joined to the scheduler's ledger, and nodes forgotten."""

import asyncio
from typing import Annotated, Final

from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec.structs import replace

from schemas.cluster.node_selection import NodeSelection, SelectNode
from schemas.errors import Accepted
from schemas.gateway import endpoints
from schemas.gateway.views import EventList, GpuAllocMap, GpuList, NodeList, NodeView
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.nodes import RemoveNode
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from schemas.telemetry.readings import GetSnapshot, GpuSampled
from services.gateway.context import Gateway, unknown_node
from services.gateway.domain.event_filter import EventFilter
from services.gateway.domain.fleet import allocation_shares, gpu_views, node_views
from services.gateway.domain.visibility import visible_allocation, visible_gpu
from services.gateway.routes.common import (
    AnyPageSize,
    Caller,
    Cursor,
    GivenReason,
    GpuPlace,
    IdempotencyKey,
    Node,
    NodePlace,
    OnNode,
    TheGateway,
    command_id_of,
    page_after,
    route,
    whole_number,
)
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.logging import log
from shared.messaging.paging import place_at

CACHE_SECONDS: Final = 5.0


@route(endpoints.LIST_GPUS)
async def list_gpus(
    gateway: TheGateway,
    identity: Caller,
    node_id: OnNode = None,
    use_cache: FromQuery[bool] = True,
    limit: AnyPageSize = None,
    cursor: Cursor = None,
) -> GpuList:
    """List every GPU with a reading at most 5 s old; `use_cache=false` has the nodes read anew
    first.

    A node that does not answer keeps its last reading, marked stale.
    """
    place = place_at(cursor, GpuPlace)
    await _refresh(gateway, use_cache=use_cache)
    live = gateway.live
    gpus = gpu_views(live.latest(), live.inventories, await _ledger(gateway))
    selected_gpus = (gpu for gpu in gpus if node_id in {None, gpu.node_id})
    page, next_cursor = page_after(
        selected_gpus, lambda gpu: GpuPlace(gpu.node_id, gpu.index, gpu.uuid), place, limit
    )
    page = tuple(visible_gpu(gpu, identity) for gpu in page)
    return GpuList(gpus=page, next_cursor=next_cursor)


@route(endpoints.LIST_NODES)
async def list_nodes(
    gateway: TheGateway, limit: AnyPageSize = None, cursor: Cursor = None
) -> NodeList:
    """List every node with what its agents report."""
    place = place_at(cursor, NodePlace)
    page, next_cursor = page_after(
        await _nodes(gateway), lambda node: NodePlace(node.node_id), place, limit
    )
    return NodeList(nodes=page, next_cursor=next_cursor)


@route(endpoints.GET_NODE)
async def get_node(node_id: Node, gateway: TheGateway) -> NodeView:
    """Return one node."""
    nodes = await _nodes(gateway)
    for node in nodes:
        if node.node_id == node_id:
            inventory = gateway.live.inventories.get(node_id)
            return replace(node, links=inventory.links if inventory else ())
    raise unknown_node(node_id, (node.node_id for node in nodes))


@route(endpoints.LIST_NODE_EVENTS)
async def list_node_events(
    node_id: Node,
    gateway: TheGateway,
    identity: Caller,
    before_id: Annotated[int | None, whole_number(0)] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
) -> EventList:
    """List what happened on a node, newest first: health, drift, changes of operators. Go on with
    the last `cursor` as `before_id`.
    """
    criteria = EventFilter(readable=identity.readable, names_of=identity.names_of)
    events = await gateway.log.read_of_node(node_id, before_id, criteria, limit)
    return EventList(events=tuple(events), cursor=events[-1].cursor if events else before_id or 0)


@route(endpoints.REMOVE_NODE)
async def remove_node(
    node_id: Node,
    gateway: TheGateway,
    identity: Caller,
    end_held: FromQuery[bool] = False,
    reason: GivenReason = "",
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Forget a node that has left; `end_held` ends what is held there, on your word. For admins."""
    return await gateway.send(
        RemoveNode(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            end_held=end_held,
            reason=reason,
        )
    )


@route(endpoints.GET_GPU_ALLOC_MAP)
async def get_gpu_alloc_map(node_id: Node, gateway: TheGateway, identity: Caller) -> GpuAllocMap:
    """The held share of each of a node's devices, "0.00" to "1.00", and the ledger behind it. Where
    a fleet file says how many shares a GPU is, the map is in these.
    """
    allocation_map = await gateway.bus.query(GetAllocationMap(node_id=node_id), AllocationMap)
    nodes = tuple(
        visible_allocation(node, identity)
        for node in allocation_map.nodes
        if node.node_id == node_id
    )
    if not nodes:
        raise unknown_node(node_id, gateway.live.inventories)
    return GpuAllocMap(nodes=nodes, gpu_alloc_map=allocation_shares(nodes))


@route(endpoints.SELECT_NODE)
async def select_node(
    gateway: TheGateway,
    required_gpus: Annotated[int, QueryParameter(ge=1, le=4096)] = 1,
    utilization_threshold: Annotated[float, QueryParameter(ge=0, le=100)] = 30.0,
    memory_threshold: Annotated[float, QueryParameter(ge=0, le=100)] = 50.0,
) -> NodeSelection:
    """The node that a deployment of so many GPUs would get now."""
    query = SelectNode(
        required_gpus=required_gpus,
        utilization_threshold=utilization_threshold,
        memory_threshold=memory_threshold,
    )
    return await gateway.bus.query(query, NodeSelection)


@route(endpoints.SELECT_NODE_FOR)
async def select_node_for(data: JSONBody[GpuRequest], gateway: TheGateway) -> NodeSelection:
    """The node that a deployment with this request would get now, as a reservation would."""
    return await gateway.bus.query(SelectNode(request=data), NodeSelection)


async def _nodes(gateway: Gateway) -> list[NodeView]:
    live = gateway.live
    return node_views(
        live.latest(), live.inventories, live.executors, await _ledger(gateway), utcnow()
    )


async def _ledger(gateway: Gateway) -> AllocationMap | None:
    """Return the allocation of all nodes; None while the scheduler is away: readings are shown
    without.
    """
    pages = gateway.pages(GetAllocationMap(), AllocationMap, "node_id", timeout_seconds=2.0)
    try:
        return AllocationMap(nodes=tuple([node async for page in pages for node in page.nodes]))
    except UnavailableError as error:
        log.info("ledger_unavailable", error=str(error))
        return None


async def _refresh(gateway: Gateway, *, use_cache: bool) -> None:
    """Query the nodes with a sample; with `use_cache` only those that seldom send one."""

    async def read(node_id: str) -> None:
        query = GetSnapshot(node_id=node_id, use_cache=use_cache)
        try:
            sample = await gateway.bus.query(query, GpuSampled)
        except (UnavailableError, RefusedError) as error:
            log.info("snapshot_unavailable", node_id=node_id, error=str(error))
            return
        await gateway.live.on_sample(sample)

    node_ids = [
        node_id
        for node_id, latest in gateway.live.latest().items()
        if not use_cache or (latest.age_seconds > CACHE_SECONDS and not latest.is_stale)
    ]
    await asyncio.gather(*(read(node_id) for node_id in node_ids))
