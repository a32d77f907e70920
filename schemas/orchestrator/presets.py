"""Saved parameters that tasks take by name: commands, facts and views."""

from enum import StrEnum
from typing import Annotated, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Command,
    Count,
    Event,
    Line,
    ListQuery,
    ListView,
    Name,
    Namespace,
    Query,
    UtcDatetime,
    View,
)
from schemas.task.parameters import ParameterName, ParameterValues
from schemas.task.part import TaskPart
from schemas.task.task_file import Description, PresetMerge

PresetParameters = Annotated[
    dict[ParameterName, ParameterValues],
    Meta(min_length=1, max_length=64),
]
PresetNames = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=16)]


class ExistingPreset(StrEnum):
    """What becomes of a preset whose name is saved again."""

    REFUSE = "refuse"  # nothing at all is saved
    KEEP = "keep"
    REPLACE = "replace"


class PresetContent(TaskPart, frozen=True, kw_only=True):
    """What is saved under a name. With `engine` only tasks of that engine take it."""

    description: Description = ""
    engine: Line | None = None
    parameters: PresetParameters


class Preset(PresetContent, frozen=True, kw_only=True):
    """Parameters with a name, as files of presets have them."""

    name: Name


SomePresets = Annotated[tuple[Preset, ...], Meta(min_length=1, max_length=100)]


class PresetFile(TaskPart, frozen=True, kw_only=True):
    """What `export` writes and `import` reads."""

    presets: SomePresets


class MergeRequest(TaskPart, frozen=True, kw_only=True):
    """Presets to merge in this order."""

    presets: PresetNames
    how: PresetMerge = PresetMerge.LAST_WINS


class SavePresets(Command, frozen=True, kw_only=True, tag="orchestrator.save_presets"):
    """Save all of these or, where one is refused, none. One that is as it is saved stays so.

    With `expected_revision` each has to have that now; 0: it is not there.
    """

    speaker_field: ClassVar[str | None] = "namespace"
    namespace: Namespace
    presets: SomePresets
    existing: ExistingPreset = ExistingPreset.REFUSE
    expected_revision: Count | None = None


class DeletePreset(Command, frozen=True, kw_only=True, tag="orchestrator.delete_preset"):
    """Tasks that took it keep what they took."""

    speaker_field: ClassVar[str | None] = "namespace"
    namespace: Namespace
    name: Name
    expected_revision: Count | None = None


class PresetEvent(Event, frozen=True, kw_only=True):
    """What both facts carry. One that is deleted and saved again is another, of another id."""

    key_field: ClassVar[str | None] = "preset_id"
    preset_id: UUID
    namespace: Namespace
    name: Name


class PresetSaved(PresetEvent, frozen=True, kw_only=True, tag="orchestrator.preset_saved"):
    """New, or with new content."""


class PresetDeleted(PresetEvent, frozen=True, kw_only=True, tag="orchestrator.preset_deleted"):
    """Deleted on request."""


class GetPreset(Query, frozen=True, kw_only=True, tag="orchestrator.get_preset"):
    """Answered by `PresetView`."""

    namespace: Namespace
    name: Name


class ListPresets(ListQuery, frozen=True, kw_only=True, tag="orchestrator.list_presets"):
    """A namespace's own presets by name, after them those of this release; None: of all
    namespaces. Answered by `PresetList`.
    """

    namespace: Namespace | None = None


class MergePresets(Query, frozen=True, kw_only=True, tag="orchestrator.merge_presets"):
    """What would these presets be together? Answered by `MergedPresets`; stores nothing."""

    namespace: Namespace
    presets: PresetNames
    how: PresetMerge = PresetMerge.LAST_WINS


class PresetView(View, frozen=True, kw_only=True, tag="orchestrator.preset"):
    """`namespace` None: it comes with this release, is there in every namespace, and never
    changes. `revision` grows with every change.
    """

    namespace: Namespace | None
    name: Name
    description: str = ""
    engine: str | None = None
    parameters: PresetParameters
    revision: Count = 0
    preset_id: UUID | None = None
    saved_at: UtcDatetime | None = None


class PresetList(ListView, frozen=True, kw_only=True, tag="orchestrator.presets"):
    """By namespace and name, those of this release last."""

    presets: tuple[PresetView, ...]


class PresetConflict(Struct, frozen=True, kw_only=True):
    """A parameter that several presets give different values; `outcome` says which it has."""

    parameter: ParameterName
    presets: tuple[Name, ...]
    outcome: str


class MergedPresets(View, frozen=True, kw_only=True, tag="orchestrator.merged_presets"):
    """`revisions` are those of the presets that were merged, in their order; 0: of this release."""

    parameters: PresetParameters
    engine: str | None = None
    conflicts: tuple[PresetConflict, ...] = ()
    revisions: tuple[Count, ...] = ()
    how: PresetMerge = PresetMerge.LAST_WINS
    presets: Annotated[tuple[Name, ...], Meta(min_length=1)]
