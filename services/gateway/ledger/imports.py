"""What other installations measured: shown here, and part of nothing else."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway.archives import ArchiveKind, ImportedView, Manifest
from schemas.gateway.views import ExperimentDetail
from schemas.orchestrator.views import TaskView
from services.gateway.domain.access import Identity
from shared.archives.tar import (
    EXPERIMENT,
    MAX_HELD_BYTES,
    PART_BYTES,
    TASK,
    damage_error,
    read_archive,
)
from shared.errors import RefusedError, UnavailableError
from shared.postgres.database import Database

COLUMNS: Final = """
subject_id, kind, task_id, task_name, namespace, cardinality(experiment_ids) AS experiments,
exported_at, exported_by, imported_at
"""

# The same import beside this one is waited for, and found.
INSERT: Final = f"""
INSERT INTO imported (subject_id, kind, task_id, task_name, namespace, experiment_ids, exported_at,
                      exported_by, content_sha256, task, experiments)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING
RETURNING {COLUMNS}
"""
INSERT_PART: Final = "INSERT INTO imported_part (subject_id, number, content) VALUES ($1, $2, $3)"
SELECT_PART: Final = "SELECT content FROM imported_part WHERE subject_id = $1 AND number = $2"
SELECT_KNOWN: Final = f"SELECT content_sha256, {COLUMNS} FROM imported WHERE subject_id = $1"
SELECT_PAGE: Final = f"""
SELECT {COLUMNS} FROM imported
WHERE ($1::timestamptz IS NULL OR (imported_at, subject_id) < ($1, $2))
  AND ($4::text[] IS NULL OR namespace = ANY ($4))
ORDER BY imported_at DESC, subject_id DESC LIMIT $3
"""
SELECT_TASK: Final = """
SELECT task, experiments, namespace, imported_at FROM imported WHERE task_id = $1
ORDER BY kind DESC, imported_at DESC LIMIT 1
"""
SELECT_EXPERIMENT: Final = """
SELECT task, experiments, namespace, imported_at FROM imported
WHERE experiment_ids @> ARRAY[$1::uuid] ORDER BY kind DESC, imported_at DESC LIMIT 1
"""
SELECT_NAMESPACE: Final = "SELECT namespace FROM imported WHERE subject_id = $1"
DELETE: Final = "DELETE FROM imported WHERE subject_id = $1"

_decode_experiments = msgspec.json.Decoder(tuple[ExperimentDetail, ...]).decode


class ImportedPlace(Struct, frozen=True, array_like=True, tag="imported"):
    """By when it came."""

    imported_at: datetime
    subject_id: UUID


class Content(Struct, frozen=True):
    """What an archive holds, as the API shows it."""

    manifest: Manifest
    task: TaskView
    experiments: tuple[ExperimentDetail, ...]

    def __post_init__(self) -> None:
        ids = {experiment.experiment_id for experiment in self.experiments}
        subject = self.manifest.subject_id
        is_whole = (
            self.task.task_id == subject
            if self.manifest.kind is ArchiveKind.TASK
            else ids == {subject}
        )
        if not is_whole or any(
            experiment.task_id != self.task.task_id for experiment in self.experiments
        ):
            raise damage_error("its files are of several tasks")
        if "\0" in self.task.task_name + self.manifest.exported_by:
            raise damage_error("a name has the character 0")


def read_content(tar: BinaryIO) -> Content:
    """Raises RefusedError."""
    tar.seek(0)
    manifest, files = read_archive(tar, is_wanted=_is_shown, largest_held_bytes=MAX_HELD_BYTES)
    if TASK not in files:
        raise damage_error(f"it has no {TASK}")
    try:
        return Content(
            manifest,
            msgspec.json.decode(files[TASK], type=TaskView),
            tuple(
                msgspec.json.decode(files[path], type=ExperimentDetail)
                for path in sorted(files)
                if path != TASK
            ),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damage_error(f"unreadable: {error}") from error


def _is_shown(path: str) -> bool:
    return path == TASK or path.endswith(f"/{EXPERIMENT}")


@dataclass(frozen=True, slots=True)
class Imports:
    """In Postgres. Nothing of it reaches the owners, so that no report and no ledger counts it."""

    database: Database

    async def add(self, content: Content, tar: BinaryIO, namespace: str) -> ImportedView:
        """Raises RefusedError where something else was imported under the same id."""
        manifest, task = content.manifest, content.task
        files = msgspec.json.encode(manifest.files, order="deterministic")
        digest = hashlib.sha256(files).hexdigest()
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                INSERT,
                manifest.subject_id,
                manifest.kind.value,
                task.task_id,
                task.task_name,
                namespace,
                [experiment.experiment_id for experiment in content.experiments],
                manifest.exported_at,
                manifest.exported_by,
                digest,
                msgspec.json.encode(task).decode(),
                msgspec.json.encode(content.experiments).decode(),
            )
            if row is not None:
                await asyncio.to_thread(tar.seek, 0)
                number = 0
                while part := await asyncio.to_thread(tar.read, PART_BYTES):
                    await connection.execute(INSERT_PART, manifest.subject_id, number, part)
                    number += 1
                return _view(row)
            row = await connection.fetchrow(SELECT_KNOWN, manifest.subject_id)
        if row is None or row["content_sha256"] != digest:
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"another export of {manifest.kind.value} {manifest.subject_id} was imported;"
                " delete that one first",
            )
        return _view(row)

    async def list_imports(
        self, last_place: ImportedPlace | None, identity: Identity, limit: int
    ) -> list[ImportedView]:
        """List the imports that a caller may see, newest first."""
        visible_namespaces = None if identity.reads_everything else list(identity.namespaces)
        place = (
            (last_place.imported_at, last_place.subject_id)
            if last_place is not None
            else (None, None)
        )
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_PAGE, *place, limit, visible_namespaces)
        return [_view(row) for row in rows]

    async def task(self, task_id: UUID) -> TaskView | None:
        row = await self._row(SELECT_TASK, task_id)
        if row is None:
            return None
        return replace(
            msgspec.json.decode(row["task"], type=TaskView),
            namespace=row["namespace"],
            imported_at=row["imported_at"],
        )

    async def experiments(self, task_id: UUID) -> tuple[ExperimentDetail, ...]:
        """Return a task's experiments without the levels of their benchmarks."""
        row = await self._row(SELECT_TASK, task_id)
        experiments = _experiments(row) if row is not None else ()
        return tuple(replace(experiment, benchmark=None) for experiment in experiments)

    async def experiment(self, experiment_id: UUID) -> ExperimentDetail | None:
        row = await self._row(SELECT_EXPERIMENT, experiment_id)
        experiments = _experiments(row) if row is not None else ()
        return next(
            (experiment for experiment in experiments if experiment.experiment_id == experiment_id),
            None,
        )

    async def archive(self, subject_id: UUID, identity: Identity) -> AsyncIterator[bytes] | None:
        """Return the archive as it came; None if this caller may not see it.

        If it is deleted meanwhile, it ends early.
        """
        row = await self._row(SELECT_NAMESPACE, subject_id)
        if row is None or not identity.reads(row["namespace"]):
            return None
        return self._parts(subject_id)

    async def _parts(self, subject_id: UUID) -> AsyncIterator[bytes]:
        number = 0
        while (row := await self._row(SELECT_PART, subject_id, number)) is not None:
            yield bytes(row["content"])
            number += 1

    async def delete(self, subject_id: UUID, identity: Identity) -> bool:
        """False if nothing was imported under this id. Raises RefusedError."""
        async with self.database.transaction() as connection:
            namespace = await connection.fetchval(SELECT_NAMESPACE, subject_id)
            if namespace is None:
                return False
            identity.require(namespace)
            await connection.execute(DELETE, subject_id)
        return True

    async def _row(self, statement: str, *key: object) -> Any:
        async with self.database.statements() as connection:
            return await connection.fetchrow(statement, *key)


def _view(row: Any) -> ImportedView:
    return msgspec.convert(dict(row), ImportedView)


def _experiments(row: Any) -> tuple[ExperimentDetail, ...]:
    return tuple(
        replace(experiment, namespace=row["namespace"], imported_at=row["imported_at"])
        for experiment in _decode_experiments(row["experiments"])
    )


@asynccontextmanager
async def on_disk(chunks: AsyncIterator[bytes]) -> AsyncIterator[BinaryIO]:
    """Store the chunks in a file without a name: it goes with the block, or with this process.

    Raises UnavailableError where there is no room for it.
    """
    waiting = bytearray()
    with tempfile.TemporaryFile() as file:
        try:
            async for chunk in chunks:
                waiting += chunk
                if len(waiting) >= PART_BYTES:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(file.write, bytes(waiting))
            await asyncio.to_thread(file.flush)
        except OSError as error:
            where = tempfile.gettempdir()
            raise UnavailableError(f"no room for what comes in, in {where}: {error}") from error
        yield file
