"""Tasks and experiments as files: what an archive says of itself, and what was imported."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import Count, ListView, Namespace, PositiveInt, UtcDatetime, View

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"


class ArchiveKind(StrEnum):
    """What an archive is of."""

    TASK = "task"
    EXPERIMENT = "experiment"


class ArchivedFile(Struct, frozen=True, kw_only=True):
    """What a file of an archive has to be."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Count


class Manifest(Struct, frozen=True, kw_only=True):
    """Of a folder or tar file with a task, its experiments, and all that was measured of them.

    `format` grows when older releases cannot read it any more. `files` are all others, by path.
    """

    format: PositiveInt
    kind: ArchiveKind
    subject_id: UUID
    exported_at: UtcDatetime
    exported_by: str
    files: dict[str, ArchivedFile]


class ImportedView(View, frozen=True, kw_only=True, tag="gateway.imported"):
    """A task or an experiment that another installation measured. No report counts it."""

    subject_id: UUID
    kind: ArchiveKind
    task_id: UUID
    task_name: str
    namespace: Namespace
    experiments: Count
    exported_at: UtcDatetime
    exported_by: str
    imported_at: UtcDatetime


class ImportedList(ListView, frozen=True, kw_only=True, tag="gateway.imported_list"):
    """Newest first."""

    imported: tuple[ImportedView, ...]
