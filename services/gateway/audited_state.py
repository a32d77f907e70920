"""What a request is about to change, asked before it and after it."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.base import MAX_PAGE
from schemas.orchestrator.secrets import ListSecrets, SecretList, SecretView
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from services.gateway.context import Gateway
from services.gateway.domain.access import FULL_ACCESS
from shared.errors import RefusedError, UnavailableError
from shared.waiting import within

ANSWER_TIMEOUT_SECONDS: Final = 2.0  # a change does not wait longer for its record


async def state_of(gateway: Gateway, places: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of what a path names; None if it is not there, or not answered in time."""
    try:
        async with within(ANSWER_TIMEOUT_SECONDS):
            state = await _find(gateway, places)
    except (RefusedError, UnavailableError, TimeoutError, ValueError):
        return None
    return None if state is None else msgspec.to_builtins(state)


async def _find(gateway: Gateway, places: Mapping[str, Any]) -> object:
    match places:
        case {"secret_name": value, "namespace": namespace}:
            return _state_of_secret(await find_secret(gateway, str(namespace), str(value)))
        case {"dataset_name": value, "namespace": namespace}:
            view = await gateway.datasets.get(str(namespace), str(value))
            return {
                "of_namespace": view.namespace,
                "sha256": view.sha256,
                "size_bytes": view.size_bytes,
                "added_by": view.added_by,
            }
        case {"task_id": value}:
            return await gateway.task(UUID(str(value)), FULL_ACCESS)
        case {"experiment_id": value}:
            return await gateway.experiment(UUID(str(value)), FULL_ACCESS)
        case {"reservation_id": value}:
            return await gateway.reservation(UUID(str(value)), FULL_ACCESS)
        case {"token_id": value}:
            return await gateway.tokens.find(UUID(str(value)))
        case {"member_id": value}:
            return await gateway.members.find(UUID(str(value)))
        case {"namespace": value}:
            uses = (await gateway.bus.query(ListNamespaces(), NamespaceList)).namespaces
            return next((use for use in uses if use.namespace == value), None)
        case {"node_id": value}:
            return await _node(gateway, str(value))
    return None


async def find_secret(gateway: Gateway, namespace: str, name: str) -> SecretView | None:
    """Return a secret as it is listed; None if it is not there."""
    query = ListSecrets(namespace=namespace, limit=MAX_PAGE)
    page = await gateway.fetch_list(query, SecretList, "secrets", all_pages=True)
    return next((secret for secret in page.secrets if secret.name == name), None)


def _state_of_secret(secret: SecretView | None) -> dict[str, object] | None:
    if secret is None:
        return None
    return {
        "of_namespace": secret.namespace,
        "revision": secret.revision,
        "set_by": secret.set_by,
        "set_at": secret.set_at,
    }


async def _node(gateway: Gateway, node_id: str) -> object:
    """Return what people set of a node, without its devices' readings."""
    allocation_map = await gateway.bus.query(GetAllocationMap(node_id=node_id), AllocationMap)
    for node in allocation_map.nodes:
        if node.node_id == node_id:
            return {
                "cordon": node.cordon,
                "labels": node.labels,
                "admitted": node.admitted,
                "cordoned_gpus": {
                    device.uuid: device.cordon
                    for device in node.devices
                    if device.cordon is not None
                },
            }
    return None
