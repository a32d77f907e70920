"""Taking nodes and GPUs out of service and back, and what disagrees with the ledger."""

from litestar.params import FromQuery, JSONBody
from msgspec.structs import replace

from schemas.errors import Accepted
from schemas.gateway.views import Cause, NamespaceRules, Relabelling, ReturnToService, Withdrawal
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, SetNamespace
from schemas.scheduler.nodes import AdmitNode, LabelNode
from schemas.scheduler.views import DriftList, ListDrifts
from services.gateway.domain.visibility import visible_drift
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import (
    Caller,
    Cursor,
    IdempotencyKey,
    NamedNamespace,
    Node,
    OnNode,
    PageSize,
    TheGateway,
    command_id_of,
    get,
    post,
)


@post("/nodes/{node_id:str}/cordon", status_code=200, dto=StrictBody[Withdrawal])
async def cordon(
    node_id: Node,
    data: JSONBody[Withdrawal],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Grant nothing new there; what runs goes on. For admins."""
    identity.require_admin()
    return await gateway.send(
        Cordon(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            device_uuid=data.device_uuid,
            reason=data.reason,
            set_by=data.set_by,
        )
    )


@post("/nodes/{node_id:str}/uncordon", status_code=200, dto=StrictBody[ReturnToService])
async def uncordon(
    node_id: Node,
    data: JSONBody[ReturnToService],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Grant there again; `confirm_stopped` also frees what is quarantined. For admins."""
    identity.require_admin()
    return await gateway.send(
        Uncordon(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            device_uuid=data.device_uuid,
            confirm_stopped=data.confirm_stopped,
            reason=data.reason,
        )
    )


@post("/nodes/{node_id:str}/drain", status_code=200, dto=StrictBody[Cause])
async def drain(
    node_id: Node,
    data: JSONBody[Cause],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Cordon a node and end its reservations. For admins."""
    identity.require_admin()
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(
        Drain(command_id=command_id, node_id=node_id, reason=data.reason, set_by=data.set_by)
    )


@post("/nodes/{node_id:str}/admit", status_code=200)
async def admit_node(
    node_id: Node, gateway: TheGateway, identity: Caller, idempotency_key: IdempotencyKey = None
) -> Accepted:
    """Grant on a node that is new here; before that nothing is granted there. For admins."""
    identity.require_admin()
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(AdmitNode(command_id=command_id, node_id=node_id))


@post("/nodes/{node_id:str}/labels", status_code=200, dto=StrictBody[Relabelling])
async def label_node(
    node_id: Node,
    data: JSONBody[Relabelling],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Set labels of a node, which win over its agent's; null takes one away. For admins."""
    identity.require_admin()
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(LabelNode(command_id=command_id, node_id=node_id, labels=data.labels))


@get("/namespaces")
async def list_namespaces(gateway: TheGateway, identity: Caller) -> NamespaceList:
    """What each of the caller's namespaces holds of GPUs, and what it may; all for admins."""
    found = await gateway.bus.query(ListNamespaces(), NamespaceList)
    return NamespaceList(
        namespaces=tuple(each for each in found.namespaces if identity.reads(each.namespace))
    )


@post("/namespaces/{namespace:str}", status_code=200, dto=StrictBody[NamespaceRules])
async def set_namespace(
    namespace: NamedNamespace,
    data: JSONBody[NamespaceRules],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Set what a namespace may hold at once, and what it is due. For admins."""
    identity.require_admin()
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(
        SetNamespace(
            command_id=command_id,
            namespace=namespace,
            gpu_limit=data.gpu_limit,
            guaranteed_gpus=data.guaranteed_gpus,
            weight=data.weight,
        )
    )


@get("/drifts")
async def list_drifts(
    gateway: TheGateway,
    identity: Caller,
    node_id: OnNode = None,
    ended: FromQuery[bool] = False,
    limit: PageSize = 1000,
    cursor: Cursor = None,
) -> DriftList:
    """Where reserved, running and used disagree; with `ended` also what did within a day.

    Whose they are is for admins.
    """
    query = ListDrifts(node_id=node_id, ended=ended, limit=limit, cursor=cursor)
    found = await gateway.listed(query, DriftList, "drifts")
    return replace(found, drifts=tuple(visible_drift(each, identity) for each in found.drifts))
