"""New servers: invited by an admin, they fetch their credentials of the bus themselves."""

import asyncio
import ssl
from base64 import b64encode
from typing import Any

from litestar import Request
from litestar.params import JSONBody

from schemas.base import node_speaker
from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.joining import InvitationRequest, JoinRequest, NodeCredentials, NodeInvitation
from schemas.gateway.tokens import AuditKind, Role
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.joining import joining_line
from services.gateway.routes.common import Node, TheGateway, record_as, route
from shared.errors import RefusedError
from shared.local_platform.bus_users import Credentials
from shared.local_platform.embedded import EmbeddedNats


@route(endpoints.INVITE_NODE)
async def invite_node(
    node_id: Node, data: JSONBody[InvitationRequest], gateway: TheGateway
) -> NodeInvitation:
    """Make the line with which the new server joins by itself, once, within an hour. For admins."""
    await asyncio.to_thread(_require_new, _bus_of(gateway, node_id), node_id)
    authority = await asyncio.to_thread(_authority_for, gateway, data.api_url)
    code, ends_at = await gateway.invitations.make(node_id)
    return NodeInvitation(
        node_id=node_id,
        code=code,
        ends_at=ends_at,
        command=joining_line(data.api_url, node_id, code, authority),
    )


@route(endpoints.JOIN)
async def join(
    data: JSONBody[JoinRequest], gateway: TheGateway, request: Request[Any, Any, Any]
) -> NodeCredentials:
    """Give a new server its credentials of the bus for the code of its invitation, once.

    No token is asked for. Nothing is granted there before an admin admits it.
    """
    bus = _bus_of(gateway, data.node_id)

    await gateway.invitations.take(data.node_id, data.code)
    invited = Identity(role=Role.VIEWER, name=f"invited {data.node_id}")
    await record_as(invited, request, AuditKind.SIGN_IN)
    made = await asyncio.to_thread(_create, bus, data.node_id)
    return NodeCredentials(
        nats_url=gateway.node_nats_url,
        user=made.user,
        password=made.password,
        inbox_prefix=made.inbox_prefix,
        ca=made.ca,
    )


def _authority_for(gateway: Gateway, api_url: str) -> str:
    """Return the authority by which who asks at this address verifies it, if it is no public one.

    Raises RefusedError.
    """
    path = gateway.authority_path
    if path is None or not api_url.startswith("https://"):
        return ""
    try:
        first = path.read_text().partition("-----END CERTIFICATE-----")
        return b64encode(ssl.PEM_cert_to_DER_cert("".join(first[:2]).strip())).decode()
    except (OSError, ValueError) as error:
        raise RefusedError(
            ErrorCode.UNAVAILABLE, f"the authority of this gateway's certificate, {path}: {error}"
        ) from error


def _bus_of(gateway: Gateway, node_id: str) -> EmbeddedNats:
    """The NATS server beside this gateway. Raises RefusedError where it is another's."""
    if gateway.nats_home is None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            "this gateway does not keep the users of its NATS server: there, "
            f"`gpusteward agent-credentials {node_id} --directory DIR` makes this node's, and in "
            f"containers `gpusteward compose add-node {node_id}`; then copy them to the server",
        )
    return EmbeddedNats(gateway.nats_home)


def _create(bus: EmbeddedNats, node_id: str) -> Credentials:
    _require_new(bus, node_id)
    user = node_speaker(node_id)
    bus.users.create([user])
    bus.reload()
    return bus.users.read(user)


def _require_new(bus: EmbeddedNats, node_id: str) -> None:
    """Raises RefusedError for a node with credentials: two would speak for it."""
    if bus.users.path_of(node_speaker(node_id)).exists():
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"{node_id} has credentials already; on the platform's host, `gpusteward "
            f"agent-credentials {node_id} --revoke` takes them back, and cuts it off",
            path="path.node_id",
        )
