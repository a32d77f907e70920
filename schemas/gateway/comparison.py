"""Experiments of any tasks side by side."""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from schemas.base import Namespace, PositiveInt, UtcDatetime, View
from schemas.task.objectives import Objective


class RowKind(StrEnum):
    """What a row of a comparison is about. All but `result` and `trust` have to be the same where
    the parameters alone are to explain a result.
    """

    MODEL = "model"
    ENGINE = "engine"
    VERSION = "version"
    HARDWARE = "hardware"
    LOAD = "load"
    PARAMETER = "parameter"
    RESULT = "result"
    TRUST = "trust"


class ComparedExperiment(Struct, frozen=True, kw_only=True):
    """One column."""

    experiment_id: UUID
    task_id: UUID
    task_name: str
    namespace: Namespace
    ordinal: PositiveInt
    state: str
    objective: Objective
    measured_at: UtcDatetime | None = None


class ComparedRow(Struct, frozen=True, kw_only=True):
    """A value of each experiment, in their order; None: not known, or not set.

    `differs` where not all are alike. Of results `values` have the number, and `best` is the place
    of the best one; None: a tie, or nothing to choose.
    """

    kind: RowKind
    name: str
    unit: str = ""
    texts: tuple[str | None, ...]
    values: tuple[float | None, ...] = ()
    differs: bool
    best: int | None = None


class ExperimentComparison(View, frozen=True, kw_only=True, tag="gateway.comparison"):
    """`cautions` say what differs beside the parameters, so that results may differ by it."""

    experiments: tuple[ComparedExperiment, ...]
    rows: tuple[ComparedRow, ...]
    cautions: tuple[str, ...] = ()
