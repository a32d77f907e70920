"""Saved parameters that tasks take by name: the orchestrator's."""

from typing import Annotated
from urllib.parse import quote

from litestar import Response
from litestar.params import FromQuery, JSONBody, PathParameter

from schemas.base import NAME_FORM, NAME_PATTERN
from schemas.errors import Accepted
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
from services.gateway.request_bodies import StrictBody
from services.gateway.routes.common import (
    UNAUDITED,
    Caller,
    Cursor,
    ExpectedRevision,
    IdempotencyKey,
    InNamespace,
    PageSize,
    TheGateway,
    command_id_of,
    delete,
    get,
    post,
)

NamedPreset = Annotated[str, PathParameter(pattern=NAME_PATTERN, description=NAME_FORM)]


@get("/presets")
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
    return await gateway.listed(query, PresetList, "presets")


@get("/presets/{preset_name:str}")
async def get_preset(
    preset_name: NamedPreset,
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> PresetView:
    """One preset, also of this release."""
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    return await gateway.bus.query(GetPreset(namespace=namespace, name=preset_name), PresetView)


@post("/presets", status_code=200, dto=StrictBody[PresetFile])
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


@post("/merged-presets", opt=UNAUDITED, status_code=200, dto=StrictBody[MergeRequest])
async def merge_presets(
    data: JSONBody[MergeRequest],
    gateway: TheGateway,
    identity: Caller,
    namespace: InNamespace = None,
) -> MergedPresets:
    """What presets would be together, and where they conflict; nothing is stored."""
    namespace = identity.namespace_to_read(namespace) or identity.namespace
    query = MergePresets(namespace=namespace, presets=data.presets, how=data.how)
    return await gateway.bus.query(query, MergedPresets)


@post("/presets/{preset_name:str}", dto=StrictBody[PresetContent])
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
    place = f"/api/v1/presets/{quote(preset_name)}"
    return Response(view, status_code=201, headers={"Location": place})


@delete("/presets/{preset_name:str}", status_code=200)
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
