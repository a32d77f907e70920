"""What an experiment has to meet, and how it stands to that."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from schemas.base import PositiveSeconds
from schemas.task.part import TaskPart
from schemas.task.quality import QualityVerdict


class PenaltyForm(StrEnum):
    """How a penalty begins at its threshold: `exponential` with the weight, `continuous` with 0."""

    EXPONENTIAL = "exponential"
    CONTINUOUS = "continuous"


class SloBound(TaskPart, frozen=True, kw_only=True):
    """A bound in seconds.

    `fail_ratio`: with `hard_fail`, how far above it an experiment fails (0.2 = 20 %).
    """

    threshold: PositiveSeconds
    weight: Annotated[float, Meta(ge=0)] = 1.0
    hard_fail: bool = False
    fail_ratio: Annotated[float, Meta(ge=0)] | None = None


class LatencySlo(TaskPart, frozen=True, kw_only=True):
    """Bounds on end-to-end latency."""

    p50: SloBound | None = None
    p90: SloBound | None = None
    p95: SloBound | None = None
    p99: SloBound | None = None


class SloSpec(TaskPart, frozen=True, kw_only=True):
    """Service level objectives. Each time above its threshold, by r as a share of it, worsens the
    score: weight x exp(r / steepness) more of it, or with `continuous` weight x expm1.
    """

    latency: LatencySlo | None = None
    ttft: SloBound | None = None
    tpot: SloBound | None = None
    steepness: Annotated[float, Meta(gt=0)] = 0.1
    form: PenaltyForm = PenaltyForm.EXPONENTIAL


class ConstraintCheck(Struct, frozen=True, kw_only=True):
    """A constraint at the `load` that is farthest from meeting it.

    `excess` is how far `actual` is beyond the bound, as a share of it: 0, it is met at every load;
    None, it was not measured. Seconds, shares from 0 to 1, rates per second.
    """

    constraint: str
    load: str = ""
    actual: float | None = None
    excess: float | None = None


class SloVerdict(Struct, frozen=True, kw_only=True):
    """`penalty` is the sum of the weighted SLO's penalties, already in the score; `failed_because`:
    the experiment failed, although it was measured. `max_goodput`: requests per second within every
    bound of a time at once; None without constraints. `quality` None: no answers were compared.
    """

    constraints: tuple[ConstraintCheck, ...] = ()
    penalty: float = 0.0
    failed_because: str = ""
    max_goodput: float | None = None
    quality: QualityVerdict | None = None
