"""The best measured configurations of a model, over all tasks."""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import Count, Namespace, PositiveInt, Query, UtcDatetime, View
from schemas.task.objectives import Objective

ServedModel = Annotated[str, Meta(min_length=1, max_length=1000)]


class ListLeaders(Query, frozen=True, kw_only=True, tag="orchestrator.list_leaders"):
    """The best experiment of a model for each engine, its version, GPUs and load. Answered by
    `LeaderList`. Without a `model` the answer has the measured models alone.
    """

    model: ServedModel | None = None
    objective: Objective = Objective.MAXIMIZE_THROUGHPUT
    namespace: Namespace | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class MeasuredModel(Struct, frozen=True, kw_only=True):
    """A model that has measured experiments, and the objectives of their tasks."""

    model: str
    experiments: PositiveInt
    objectives: tuple[Objective, ...]
    measured_at: UtcDatetime


class Leader(Struct, frozen=True, kw_only=True):
    """The best of `experiments` that differ in their parameters alone.

    `version` is the tag of the engine's image, `image_digest` that of the image that ran; empty:
    not known. `misses` are constraints that it does not meet. `doubts` say why its score may be
    off. `runs` count how often its configuration was measured; with `is_confirmed` its task
    repeated the best ones and chose it, and `spread_percent` is the deviation of its runs.
    """

    experiment_id: UUID
    task_id: UUID
    task_name: str
    namespace: Namespace
    ordinal: PositiveInt
    engine: str
    version: str = ""
    image_digest: str = ""
    gpu_models: tuple[str, ...] = ()
    driver_versions: tuple[str, ...] = ()
    gpus: PositiveInt
    load: str
    parameters: dict[str, Any]
    score: float
    measured_at: UtcDatetime | None = None
    experiments: PositiveInt = 1
    misses: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    runs: Count = 1
    is_confirmed: bool = False
    spread_percent: float | None = None


class LeaderList(View, frozen=True, kw_only=True, tag="orchestrator.leaders"):
    """The best first; those that miss constraints last. Scores of one `load` alone compare."""

    models: tuple[MeasuredModel, ...]
    leaders: tuple[Leader, ...] = ()
    objective: Objective = Objective.MAXIMIZE_THROUGHPUT
