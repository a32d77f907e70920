"""Saved presets, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.orchestrator.presets import MergedPresets, Preset, PresetView
from schemas.task.task_file import PresetMerge
from services.orchestrator.domain.presets.merge import merge
from services.orchestrator.domain.presets.release import RELEASE_PRESETS
from shared.errors import RefusedError
from shared.postgres.database import Connection, Row, from_json, to_json

# Changes of one namespace's presets are made one after the other: a name that is not there yet has
# no row to lock.
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('preset/' || $1::text, 0))"

SELECT_BY_NAME: Final = """
SELECT namespace, name, preset_id, revision, saved_at, record FROM preset
WHERE namespace = $1 AND name = ANY ($2)
"""

SELECT_PAGE: Final = """
SELECT namespace, name, preset_id, revision, saved_at, record FROM preset
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR (namespace, name) > ($2, $3::text))
ORDER BY namespace, name LIMIT $4
"""

UPSERT: Final = """
INSERT INTO preset (namespace, name, preset_id, revision, saved_at, record)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, name) DO UPDATE SET revision = $4, saved_at = $5, record = $6
"""

COUNT: Final = "SELECT count(*) FROM preset WHERE namespace = $1"
DELETE: Final = "DELETE FROM preset WHERE namespace = $1 AND name = $2"


class PresetPlace(Struct, frozen=True, array_like=True, tag="preset"):
    """Where a preset is in a list; those of the release, without a namespace, come last."""

    namespace: str | None
    name: str


async def lock(connection: Connection, namespace: str) -> None:
    await connection.execute(LOCK, namespace)


async def find_saved(
    connection: Connection, namespace: str, names: Sequence[str]
) -> dict[str, PresetView]:
    """Return presets that a namespace has saved itself, by name."""
    rows = await connection.fetch(SELECT_BY_NAME, namespace, list(names))
    return {row["name"]: _view(row) for row in rows}


async def page(
    connection: Connection, namespace: str | None, start: PresetPlace | None, limit: int
) -> list[PresetView]:
    """Up to `limit` of what follows a place."""
    presets: list[PresetView] = []
    if start is None or start.namespace is not None:
        place = (None, None) if start is None else (start.namespace, start.name)
        rows = await connection.fetch(SELECT_PAGE, namespace, *place, limit)
        presets = [_view(row) for row in rows]
        start = None
    of_release = sorted(RELEASE_PRESETS.values(), key=lambda preset: preset.name)
    presets += [preset for preset in of_release if start is None or preset.name > start.name]
    return presets[:limit]


async def count(connection: Connection, namespace: str) -> int:
    number: int = await connection.fetchval(COUNT, namespace)
    return number


async def save(
    connection: Connection,
    namespace: str,
    preset: Preset,
    *,
    preset_id: UUID,
    revision: int,
    now: datetime,
) -> None:
    await connection.execute(
        UPSERT, namespace, preset.name, preset_id, revision, now, to_json(preset)
    )


async def delete(connection: Connection, namespace: str, name: str) -> None:
    await connection.execute(DELETE, namespace, name)


async def merge_saved(
    connection: Connection, namespace: str, names: Sequence[str], how: PresetMerge, path: str
) -> MergedPresets:
    """Raises RefusedError for a preset that is not there, and for what cannot be merged."""
    by_name = RELEASE_PRESETS | await find_saved(connection, namespace, names)
    for name in names:
        if name not in by_name:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"namespace {namespace} has no preset {name!r}; `gpusteward preset list`",
                path=path,
            )
    distinct = list(dict.fromkeys(names))
    return merge([by_name[name] for name in distinct], how, path)


def _view(row: Row) -> PresetView:
    preset = from_json(row["record"], Preset)
    return PresetView(
        namespace=row["namespace"],
        name=preset.name,
        description=preset.description,
        engine=preset.engine,
        parameters=preset.parameters,
        revision=row["revision"],
        preset_id=row["preset_id"],
        saved_at=row["saved_at"],
    )
