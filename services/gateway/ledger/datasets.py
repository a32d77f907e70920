"""Files that people uploaded for their tasks: in Postgres, where every gateway has them."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.gateway.datasets import (
    PIECE_BYTES,
    DatasetContents,
    DatasetPiece,
    DatasetView,
    GetDatasetPiece,
)
from shared.errors import RefusedError
from shared.postgres.database import Connection, Database, from_json, to_json

# Added files share it, and who deletes contents that nothing names has it alone.
CONTENTS_LOCK: Final = 0x6770647300
# A task may have been given the file just before its name came to mean another.
SUPERSEDED_KEPT: Final = timedelta(minutes=10)

SHARE_CONTENTS: Final = "SELECT pg_advisory_xact_lock_shared($1)"
TRY_CONTENTS: Final = "SELECT pg_try_advisory_xact_lock($1)"
LOCK_NAMESPACE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('dataset ' || $1, 0))"

INSERT_CONTENT: Final = """
INSERT INTO dataset_content (sha256, size_bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING
RETURNING true
"""
INSERT_PIECE: Final = "INSERT INTO dataset_piece (sha256, number, content) VALUES ($1, $2, $3)"
SELECT_PIECE: Final = """
SELECT content, size_bytes FROM dataset_piece JOIN dataset_content USING (sha256)
WHERE sha256 = $1 AND number = $2
"""
SUPERSEDE: Final = """
UPDATE dataset SET superseded_at = now()
WHERE namespace = $1 AND name = $2 AND sha256 <> $3 AND superseded_at IS NULL
"""
INSERT: Final = """
INSERT INTO dataset (namespace, name, sha256, contents, added_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (namespace, name, sha256) DO UPDATE SET superseded_at = NULL
"""
USED_BYTES: Final = """
SELECT coalesce(sum(size_bytes), 0) FROM dataset_content
WHERE sha256 IN (SELECT sha256 FROM dataset WHERE $1::text IS NULL OR namespace = $1)
"""
HAS_SIZE: Final = """
SELECT EXISTS (SELECT FROM dataset JOIN dataset_content USING (sha256)
               WHERE namespace = $1 AND size_bytes = $2)
"""
SELECT: Final = """
SELECT namespace, name, sha256, size_bytes, contents, added_by, added_at
FROM dataset JOIN dataset_content USING (sha256)
"""
# One that is named by its SHA-256 counts also when its name means another.
SELECT_ONE: Final = f"""{SELECT}
WHERE namespace = $1 AND name = $2
  AND (sha256 = $3 OR $3::text IS NULL AND superseded_at IS NULL)
"""
SELECT_PAGE: Final = f"""{SELECT}
WHERE superseded_at IS NULL AND ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR (namespace, name) > ($2, $3))
ORDER BY namespace, name LIMIT $4
"""
DELETE: Final = "DELETE FROM dataset WHERE namespace = $1 AND name = $2"
DELETE_SUPERSEDED: Final = """
DELETE FROM dataset WHERE namespace = $1 AND superseded_at < now() - $2::interval
  AND sha256 <> ALL ($3)
"""
DELETE_CONTENTS: Final = """
DELETE FROM dataset_content content
WHERE NOT EXISTS (SELECT FROM dataset WHERE dataset.sha256 = content.sha256)
"""


class DatasetPlace(Struct, frozen=True, array_like=True, tag="dataset"):
    """By namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Datasets:
    """By name in a namespace; `quota_bytes` is how much those of one may have together."""

    database: Database
    max_bytes: int
    quota_bytes: int

    async def add(
        self, view: DatasetView, file: BinaryIO, used_sha256: Collection[str]
    ) -> DatasetView:
        """Store a file, all or nothing; its name means it from now on.

        Of the files that the name meant before, those go that no task uses. Raises RefusedError
        where the namespace has no room.
        """
        async with self.database.transaction() as connection:
            await connection.execute(SHARE_CONTENTS, CONTENTS_LOCK)
            if await connection.fetchval(INSERT_CONTENT, view.sha256, view.size_bytes):
                await asyncio.to_thread(file.seek, 0)
                number = 0
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    await connection.execute(INSERT_PIECE, view.sha256, number, piece)
                    number += 1
            await connection.execute(LOCK_NAMESPACE, view.namespace)
            await self._delete_superseded(connection, view.namespace, used_sha256)
            await connection.execute(SUPERSEDE, view.namespace, view.name, view.sha256)
            await connection.execute(
                INSERT,
                view.namespace,
                view.name,
                view.sha256,
                to_json(view.contents),
                view.added_by,
            )
            used_bytes = await connection.fetchval(USED_BYTES, view.namespace)
            if used_bytes > self.quota_bytes:
                raise self._no_room(view.namespace, used_bytes)
        await self._delete_contents()
        return await self.get(view.namespace, view.name)

    async def require_room(self, namespace: str, size_bytes: int) -> None:
        """Raises RefusedError for a file that cannot be stored, before it is sent."""
        async with self.database.statements() as connection:
            used_bytes = await connection.fetchval(USED_BYTES, namespace)
            # It may be one that is there.
            is_known = await connection.fetchval(HAS_SIZE, namespace, size_bytes)
        if used_bytes + size_bytes > self.quota_bytes and not is_known:
            raise self._no_room(namespace, used_bytes + size_bytes)

    def _no_room(self, namespace: str, needed_bytes: int) -> RefusedError:
        return RefusedError(
            ErrorCode.TOO_LARGE,
            f"expected datasets of namespace {namespace} of at most {self.quota_bytes >> 20} MiB"
            " together (GPUSTEWARD_GATEWAY_DATASETS_QUOTA_MB); with this one they would have"
            f" {-(-needed_bytes // (1 << 20))}: `gpusteward dataset remove` makes room",
        )

    async def get(self, namespace: str, name: str, sha256: str | None = None) -> DatasetView:
        """Return what a name means, or what it meant with this `sha256`. Raises RefusedError."""
        async with self.database.statements() as connection:
            row = await connection.fetchrow(SELECT_ONE, namespace, name, sha256)
        if row is None:
            with_hash = f" with SHA-256 {sha256}" if sha256 is not None else ""
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"namespace {namespace} has no dataset {name}{with_hash}; `gpusteward dataset list`"
                " shows those that it has",
            )
        return _view(row)

    async def list_datasets(
        self, namespace: str | None, last_place: DatasetPlace | None, limit: int
    ) -> list[DatasetView]:
        """List a namespace's files by name; None: everybody's."""
        start = (last_place.namespace, last_place.name) if last_place is not None else (None, None)
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_PAGE, namespace, *start, limit)
        return [_view(row) for row in rows]

    async def count_bytes(self, namespace: str | None) -> int:
        """Return what the files of a namespace have together, each content once."""
        async with self.database.statements() as connection:
            return int(await connection.fetchval(USED_BYTES, namespace))

    async def remove(self, namespace: str, name: str) -> None:
        """Forget a name, and the files that it meant."""
        async with self.database.transaction() as connection:
            await connection.execute(LOCK_NAMESPACE, namespace)
            await connection.execute(DELETE, namespace, name)
        await self._delete_contents()

    async def piece(self, query: GetDatasetPiece) -> DatasetPiece:
        """Return a part of a file. Raises RefusedError."""
        async with self.database.statements() as connection:
            row = await connection.fetchrow(SELECT_PIECE, query.sha256, query.number)
        if row is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"the uploaded file with SHA-256 {query.sha256} is not there any more: somebody"
                " removed it",
            )
        return DatasetPiece(content=bytes(row["content"]), size_bytes=row["size_bytes"])

    async def _delete_superseded(
        self, connection: Connection, namespace: str, used_sha256: Collection[str]
    ) -> None:
        await connection.execute(DELETE_SUPERSEDED, namespace, SUPERSEDED_KEPT, list(used_sha256))

    async def _delete_contents(self) -> None:
        """Delete what nothing names; where one is being added the next change does."""
        async with self.database.transaction() as connection:
            if await connection.fetchval(TRY_CONTENTS, CONTENTS_LOCK):
                await connection.execute(DELETE_CONTENTS)


def _view(row: Any) -> DatasetView:
    values = dict(row)
    return DatasetView(**{**values, "contents": from_json(values["contents"], DatasetContents)})
