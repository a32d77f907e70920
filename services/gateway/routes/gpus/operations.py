"""Taking nodes and GPUs out of service and back, and what disagrees with the ledger."""

from litestar.params import FromQuery, JSONBody
from msgspec.structs import replace

from schemas.errors import Accepted, ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.tokens import Role
from schemas.gateway.views import Cause, NamespaceRules, Relabelling, ReturnToService, Withdrawal
from schemas.scheduler.devices import Cordon, Drain, Uncordon
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, SetNamespace
from schemas.scheduler.nodes import AdmitNode, LabelNode
from schemas.scheduler.views import DriftList, ListDrifts
from services.gateway.context import Gateway
from services.gateway.domain.visibility import visible_drift
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
    route,
)
from shared.errors import RefusedError


@route(endpoints.CORDON)
async def cordon(
    node_id: Node,
    data: JSONBody[Withdrawal],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Grant nothing new there; what runs goes on. For admins."""
    return await gateway.send(
        Cordon(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            device_uuid=data.device_uuid,
            reason=data.reason,
            set_by=data.set_by,
        )
    )


@route(endpoints.UNCORDON)
async def uncordon(
    node_id: Node,
    data: JSONBody[ReturnToService],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Grant there again; `confirm_stopped` also frees what is quarantined. For admins."""
    return await gateway.send(
        Uncordon(
            command_id=command_id_of(idempotency_key, identity),
            node_id=node_id,
            device_uuid=data.device_uuid,
            confirm_stopped=data.confirm_stopped,
            reason=data.reason,
        )
    )


@route(endpoints.DRAIN)
async def drain(
    node_id: Node,
    data: JSONBody[Cause],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Cordon a node and end its reservations. For admins."""
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(
        Drain(command_id=command_id, node_id=node_id, reason=data.reason, set_by=data.set_by)
    )


@route(endpoints.ADMIT_NODE)
async def admit_node(
    node_id: Node, gateway: TheGateway, identity: Caller, idempotency_key: IdempotencyKey = None
) -> Accepted:
    """Grant on a node that is new here; before that nothing is granted there. For admins."""
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(AdmitNode(command_id=command_id, node_id=node_id))


@route(endpoints.LABEL_NODE)
async def label_node(
    node_id: Node,
    data: JSONBody[Relabelling],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Set labels of a node, which win over its agent's; null takes one away. For admins."""
    command_id = command_id_of(idempotency_key, identity)
    return await gateway.send(LabelNode(command_id=command_id, node_id=node_id, labels=data.labels))


@route(endpoints.LIST_NAMESPACES)
async def list_namespaces(gateway: TheGateway, identity: Caller) -> NamespaceList:
    """List what each of the caller's namespaces holds of GPUs, and its quota; all for admins."""
    namespace_list = await gateway.bus.query(ListNamespaces(), NamespaceList)
    return NamespaceList(
        namespaces=tuple(
            namespace
            for namespace in namespace_list.namespaces
            if identity.reads(namespace.namespace)
        )
    )


@route(endpoints.SET_NAMESPACE)
async def set_namespace(
    namespace: NamedNamespace,
    data: JSONBody[NamespaceRules],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Set what a namespace may hold at once. For its owners; what it is due before others
    (`guaranteed_gpus`, `weight`) is for admins.
    """
    identity.require_owner(namespace)
    if identity.role is not Role.ADMIN:
        await _require_same_dues(namespace, data, gateway)
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


async def _require_same_dues(namespace: str, rules: NamespaceRules, gateway: Gateway) -> None:
    """Raises RefusedError where an owner would take what is others' as well."""
    uses = (await gateway.bus.query(ListNamespaces(), NamespaceList)).namespaces
    use = next((use for use in uses if use.namespace == namespace), NamespaceRules())
    if (rules.guaranteed_gpus, rules.weight) != (use.guaranteed_gpus, use.weight):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"expected guaranteed_gpus {use.guaranteed_gpus:g} and weight {use.weight} as they"
            f" are, found {rules.guaranteed_gpus:g} and {rules.weight}: an owner sets the limit,"
            " an admin what is taken from others",
        )


@route(endpoints.LIST_DRIFTS)
async def list_drifts(
    gateway: TheGateway,
    identity: Caller,
    node_id: OnNode = None,
    ended: FromQuery[bool] = False,
    limit: PageSize = 1000,
    cursor: Cursor = None,
) -> DriftList:
    """List where reserved, running and used disagree; with `ended` also what did within a day.

    Only admins see whose they are.
    """
    query = ListDrifts(node_id=node_id, ended=ended, limit=limit, cursor=cursor)
    drift_list = await gateway.fetch_list(query, DriftList, "drifts")
    return replace(
        drift_list, drifts=tuple(visible_drift(drift, identity) for drift in drift_list.drifts)
    )
