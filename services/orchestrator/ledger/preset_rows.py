"""Saved presets, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.orchestrator.presets import MergedPresets, Preset, PresetView
from schemas.task.task_file import PresetMerge, TaskFile
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.plan import make_planner
from services.orchestrator.domain.presets.merge import merge, with_parameters_of
from services.orchestrator.domain.presets.release import RELEASE_PRESETS
from services.orchestrator.node_names import with_node_ids
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


async def saved(
    connection: Connection, namespace: str, names: Sequence[str]
) -> dict[str, PresetView]:
    """Those that a namespace has saved itself, by name."""
    rows = await connection.fetch(SELECT_BY_NAME, namespace, list(names))
    return {row["name"]: _view(row) for row in rows}


async def page(
    connection: Connection, namespace: str | None, after: PresetPlace | None, limit: int
) -> list[PresetView]:
    """Up to `limit` of what follows a place."""
    found: list[PresetView] = []
    if after is None or after.namespace is not None:
        place = (None, None) if after is None else (after.namespace, after.name)
        rows = await connection.fetch(SELECT_PAGE, namespace, *place, limit)
        found = [_view(row) for row in rows]
        after = None
    of_release = sorted(RELEASE_PRESETS.values(), key=lambda preset: preset.name)
    found += [each for each in of_release if after is None or each.name > after.name]
    return found[:limit]


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


async def merged(
    connection: Connection, namespace: str, names: Sequence[str], how: PresetMerge, path: str
) -> MergedPresets:
    """Raises RefusedError for a preset that is not there, and for what cannot be merged."""
    known = RELEASE_PRESETS | await saved(connection, namespace, names)
    for name in names:
        if name not in known:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"namespace {namespace} has no preset {name!r}; `gpusteward preset list`",
                path=path,
            )
    distinct = list(dict.fromkeys(names))
    return merge([known[name] for name in distinct], how, path)


async def with_presets(
    connection: Connection, namespace: str, task: TaskFile, offers: Sequence[Offer]
) -> tuple[TaskFile, tuple[str, ...]]:
    """The task with the parameters of the presets that it names, and notes. Raises RefusedError."""
    if not task.presets:
        return task, ()
    path = "$.presets"
    found = await merged(connection, namespace, task.presets, task.preset_merge, path)
    if found.engine is not None:
        engine = make_planner(with_node_ids(task), offers).engine
        if found.engine != engine:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected presets of {engine}, the task's engine, got some of {found.engine}",
                path=path,
            )
    changed, notes = with_parameters_of(task, found)
    return changed, tuple(notes)


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
