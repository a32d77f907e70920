"""Commands and queries of saved presets."""

from dataclasses import dataclass
from typing import Final

from schemas.errors import Accepted, ErrorCode, Reply
from schemas.orchestrator.presets import (
    DeletePreset,
    ExistingPreset,
    GetPreset,
    ListPresets,
    MergedPresets,
    MergePresets,
    Preset,
    PresetDeleted,
    PresetList,
    PresetSaved,
    PresetView,
    SavePresets,
)
from services.orchestrator.domain.presets.release import RELEASE_PRESETS
from services.orchestrator.domain.records import event_id
from services.orchestrator.ledger import preset_rows
from services.orchestrator.ledger.preset_rows import PresetPlace
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.messaging.bus import Route, command_route, query_route
from shared.messaging.expected_revision import require_revision
from shared.messaging.paging import page_of, place_at
from shared.postgres.commands import once
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage

MAX_PRESETS: Final = 1000


@dataclass(frozen=True, slots=True)
class PresetHandlers:
    database: Database

    async def save_presets(self, command: SavePresets) -> Reply:
        """Save all of them, or none."""
        namespace = command.namespace

        async def apply(connection: Connection) -> Accepted:
            _refuse_repeated(command)
            await preset_rows.lock(connection, namespace)
            names = [preset.name for preset in command.presets]
            saved_presets = await preset_rows.find_saved(connection, namespace, names)
            revision = 0
            for preset in command.presets:
                revision = await _save(connection, command, preset, saved_presets.get(preset.name))
            if await preset_rows.count(connection, namespace) > MAX_PRESETS:
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"expected at most {MAX_PRESETS} presets of a namespace: delete some",
                )
            return Accepted(command_id=command.command_id, revision=revision)

        return await once(self.database, command, apply)

    async def delete_preset(self, command: DeletePreset) -> Reply:
        """Tasks have their parameters themselves: nothing depends on it."""

        async def apply(connection: Connection) -> Accepted:
            _refuse_of_release(command.name)
            await preset_rows.lock(connection, command.namespace)
            preset = await _require(connection, command.namespace, command.name)
            require_revision(command.expected_revision, preset.revision)
            await preset_rows.delete(connection, command.namespace, command.name)
            preset_id, revision = preset.preset_id or new_id(), preset.revision + 1
            await stage(
                connection,
                PresetDeleted(
                    message_id=event_id(preset_id, revision),
                    occurred_at=utcnow(),
                    revision=revision,
                    preset_id=preset_id,
                    namespace=command.namespace,
                    name=command.name,
                ),
            )
            return Accepted(command_id=command.command_id, revision=revision)

        return await once(self.database, command, apply)

    async def get_preset(self, query: GetPreset) -> PresetView:
        """Return one preset, also of the release."""
        if query.name in RELEASE_PRESETS:
            return RELEASE_PRESETS[query.name]
        async with self.database.transaction() as connection:
            return await _require(connection, query.namespace, query.name)

    async def list_presets(self, query: ListPresets) -> PresetList:
        """Return as many presets as one answer carries."""
        place = place_at(query.cursor, PresetPlace)
        async with self.database.transaction() as connection:
            presets = await preset_rows.page(connection, query.namespace, place, query.limit + 1)
        page, next_cursor = page_of(
            [(preset, PresetPlace(preset.namespace, preset.name)) for preset in presets],
            query.limit,
        )
        return PresetList(presets=page, next_cursor=next_cursor)

    async def merge_presets(self, query: MergePresets) -> MergedPresets:
        """Return what presets would be together."""
        async with self.database.transaction() as connection:
            return await preset_rows.merge_saved(
                connection, query.namespace, query.presets, query.how, "$.presets"
            )


async def _save(
    connection: Connection, command: SavePresets, preset: Preset, existing: PresetView | None
) -> int:
    """The preset's revision afterwards; nothing is written where nothing changes."""
    _refuse_of_release(preset.name)
    require_revision(command.expected_revision, existing.revision if existing is not None else 0)
    if existing is not None:
        if command.existing is ExistingPreset.KEEP or _is_same(existing, preset):
            return existing.revision
        if command.existing is ExistingPreset.REFUSE:
            raise RefusedError(
                ErrorCode.NAME_TAKEN,
                f"expected a name that no preset of namespace {command.namespace!r} has, got "
                f"{preset.name!r}",
                path="$.name",
            )
    revision = existing.revision + 1 if existing is not None else 1
    preset_id = (existing.preset_id if existing is not None else None) or new_id()
    now = utcnow()
    await preset_rows.save(
        connection, command.namespace, preset, preset_id=preset_id, revision=revision, now=now
    )
    await stage(
        connection,
        PresetSaved(
            message_id=event_id(preset_id, revision),
            occurred_at=now,
            revision=revision,
            preset_id=preset_id,
            namespace=command.namespace,
            name=preset.name,
        ),
    )
    return revision


def _is_same(existing: PresetView, preset: Preset) -> bool:
    """Return whether nothing changes, not even the order of parameters, which is that of a grid."""
    return (
        (existing.description, existing.engine) == (preset.description, preset.engine)
        and existing.parameters == preset.parameters
        and list(existing.parameters) == list(preset.parameters)
    )


async def _require(connection: Connection, namespace: str, name: str) -> PresetView:
    preset = (await preset_rows.find_saved(connection, namespace, [name])).get(name)
    if preset is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"namespace {namespace} has no preset {name!r}", path="$.name"
        )
    return preset


def _refuse_of_release(name: str) -> None:
    if name in RELEASE_PRESETS:
        raise RefusedError(
            ErrorCode.NAME_TAKEN,
            f"expected another name: {name!r} comes with this release and does not change",
            path="$.name",
        )


def _refuse_repeated(command: SavePresets) -> None:
    names = [preset.name for preset in command.presets]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{repeated!r} is given twice", path="$.presets")


def preset_routes(handlers: PresetHandlers) -> list[Route]:
    return [
        command_route(handlers.save_presets, SavePresets),
        command_route(handlers.delete_preset, DeletePreset),
        query_route(handlers.get_preset, GetPreset),
        query_route(handlers.list_presets, ListPresets),
        query_route(handlers.merge_presets, MergePresets),
    ]
