"""Saved parameters that tasks take by name: the orchestrator's."""

from typing import Annotated

from litestar import Response
from litestar.params import FromQuery, JSONBody, PathParameter

from schemas.base import NAME_FORM, NAME_PATTERN
from schemas.errors import Accepted
from schemas.gateway import endpoints
from schemas.orchestrator.presets import (
    DeletePreset,
    ExistingPreset,
    GetPreset,
    ListPresets,
    MergedPresets,
    MergePresets,
    MergeRequest,
    Preset,
    PresetContent,
    PresetFile,
    PresetList,
    PresetView,
    SavePresets,
)
from services.gateway.routes.common import (
    Caller,
    Cursor,
    ExpectedRevision,
    IdempotencyKey,
    InNamespace,
    PageSize,
    TheGateway,
    command_id_of,
    route,
)

NamedPreset = Annotated[str, PathParameter(pattern=NAME_PATTERN, description=NAME_FORM)]


@route(endpoints.LIST_PRESETS)
async def list_presets(
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> PresetList:
    """A namespace's own presets by name, after them those of this release."""
    namespace = identity.namespace_to_read(namespace)
    query = ListPresets(namespace=namespace, limit=limit, cursor=cursor)
    return await gateway.fetch_list(query, PresetList, "presets")


@route(endpoints.GET_PRESET)
async def get_preset(
    preset_name: NamedPreset,
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> PresetView:
    """Return one preset, built-in ones included."""
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    return await gateway.bus.query(GetPreset(namespace=namespace, name=preset_name), PresetView)


@route(endpoints.SAVE_PRESETS)
async def save_presets(
    data: JSONBody[PresetFile],
    gateway: TheGateway,
    identity: Caller,
    existing: FromQuery[ExistingPreset] = ExistingPreset.REFUSE,
    namespace: InNamespace = None,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Save all of these, or none; `existing`: what becomes of those that differ by content."""
    namespace = identity.namespace_for(namespace)
    return await gateway.send(
        SavePresets(
            command_id=command_id_of(idempotency_key, identity, namespace),
            namespace=namespace,
            presets=data.presets,
            existing=existing,
        )
    )


@route(endpoints.MERGE_PRESETS)
async def merge_presets(
    data: JSONBody[MergeRequest],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> MergedPresets:
    """Merge presets: what they are together, and where they conflict; stores nothing."""
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    query = MergePresets(namespace=namespace, presets=data.presets, how=data.how)
    return await gateway.bus.query(query, MergedPresets)


@route(endpoints.SAVE_PRESET)
async def save_preset(
    preset_name: NamedPreset,
    data: JSONBody[PresetContent],
    gateway: TheGateway,
    identity: Caller,
    expected_revision: ExpectedRevision,
    namespace: InNamespace = None,
    idempotency_key: IdempotencyKey = None,
) -> Response[PresetView]:
    """Save one under this name, in place of what has it now."""
    namespace = identity.namespace_for(namespace)
    preset = Preset(
        name=preset_name,
        description=data.description,
        engine=data.engine,
        parameters=data.parameters,
    )
    await gateway.send(
        SavePresets(
            command_id=command_id_of(idempotency_key, identity, namespace),
            namespace=namespace,
            presets=(preset,),
            existing=ExistingPreset.REPLACE,
            expected_revision=expected_revision,
        )
    )
    view = await gateway.bus.query(GetPreset(namespace=namespace, name=preset_name), PresetView)
    place = endpoints.GET_PRESET.address(preset_name=preset_name)
    return Response(view, status_code=201, headers={"Location": place})


@route(endpoints.DELETE_PRESET)
async def delete_preset(
    preset_name: NamedPreset,
    gateway: TheGateway,
    identity: Caller,
    expected_revision: ExpectedRevision,
    namespace: InNamespace = None,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Delete one; tasks that took it keep its parameters."""
    namespace = identity.namespace_for(namespace)
    return await gateway.send(
        DeletePreset(
            command_id=command_id_of(idempotency_key, identity, namespace),
            namespace=namespace,
            name=preset_name,
            expected_revision=expected_revision,
        )
    )
