"""Secrets of namespaces: the orchestrator's. No answer ever has a value."""

from typing import Annotated, Final

from litestar.params import JSONBody, PathParameter

from schemas.base import SECRET_NAME_PATTERN, VARIABLE_FORM
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.gateway import endpoints
from schemas.orchestrator.secrets import (
    ListSecrets,
    RemoveSecret,
    RotateSecretKey,
    SecretList,
    SecretValue,
    SecretView,
    SetSecret,
)
from services.gateway.audited_state import find_secret
from services.gateway.routes.common import (
    Caller,
    Cursor,
    InNamespace,
    PageSize,
    TheGateway,
    route,
)
from shared.errors import RefusedError
from shared.ids import new_id

NamedSecret = Annotated[str, PathParameter(pattern=SECRET_NAME_PATTERN, description=VARIABLE_FORM)]
ROTATION_SECONDS: Final = 60.0


@route(endpoints.LIST_SECRETS)
async def list_secrets(
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> SecretList:
    """A namespace's secrets by name, who set them and which unfinished tasks name them."""
    namespace = identity.namespace_to_read(namespace)
    query = ListSecrets(namespace=namespace, limit=limit, cursor=cursor)
    return await gateway.fetch_list(query, SecretList, "secrets")


@route(endpoints.SET_SECRET)
async def set_secret(
    secret_name: NamedSecret,
    data: JSONBody[SecretValue],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> SecretView:
    """Keep a value under a name, in place of the one before. It is not shown again."""
    namespace = identity.namespace_for(namespace)
    await gateway.send(
        SetSecret(
            command_id=new_id(),
            namespace=namespace,
            name=secret_name,
            value=data.value,
            set_by=identity.name or identity.requester,
        )
    )
    view = await find_secret(gateway, namespace, secret_name)
    if view is None:
        raise RefusedError(ErrorCode.CONFLICT, f"{secret_name} was removed again meanwhile")
    return view


@route(endpoints.REMOVE_SECRET)
async def remove_secret(
    secret_name: NamedSecret,
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> Accepted:
    """Forget a secret; what runs keeps it, and a task that names it starts nothing more."""
    namespace = identity.namespace_for(namespace)
    return await gateway.send(
        RemoveSecret(command_id=new_id(), namespace=namespace, name=secret_name)
    )


@route(endpoints.ROTATE_SECRET_KEY)
async def rotate_secret_key(gateway: TheGateway) -> Accepted:
    """Seal every secret with the newest key of the platform; `revision` counts them. For admins."""
    command = RotateSecretKey(command_id=new_id())
    reply = await gateway.bus.request(command, timeout_seconds=ROTATION_SECONDS)
    if isinstance(reply, Refused):
        raise RefusedError.from_refused(reply)
    return reply
