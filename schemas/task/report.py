"""What a task found out: its best configuration, what made the difference, what it cost."""

from typing import Any
from uuid import UUID

from msgspec import Struct

from schemas.base import Count, PositiveInt, Seconds, View
from schemas.orchestrator.experiments import TaskState
from schemas.task.benchmark import LoadBoundary
from schemas.task.dataset import DatasetUse
from schemas.task.objectives import Objective
from schemas.task.quality import QualityVerdict
from schemas.task.task_file import StopReason
from schemas.task.trace import TraceUse
from schemas.task.trust import TrustVerdict


class ReportedExperiment(Struct, frozen=True, kw_only=True):
    """A measured configuration. `worse_percent` is by how much its score is behind the best one's;
    None: it is not comparable, for the reason in `because`. `quality`: its answers, where they were
    compared. `boundary`: where the greatest load lies that meets the constraints, where it was
    searched. `predicted_score` is what the task's prior foresaw.
    """

    experiment_id: UUID
    ordinal: PositiveInt
    parameters: dict[str, Any]
    score: float | None
    worse_percent: float | None = None
    because: str = ""
    quality: QualityVerdict | None = None
    boundary: LoadBoundary | None = None
    predicted_score: float | None = None


class ParameterChange(Struct, frozen=True, kw_only=True):
    """What the best configuration sets otherwise than the baseline; None: not set."""

    name: str
    baseline: Any = None
    best: Any = None


class ValueMean(Struct, frozen=True, kw_only=True):
    """The mean score of the experiments with one value of a parameter, or with values in a range
    (`1..8`).
    """

    value: str
    experiments: Count
    mean_score: float


class ParameterImportance(Struct, frozen=True, kw_only=True):
    """`share` is how much of the scores' variance lies between the parameter's values, 0 to 1.

    None: too few experiments, or every one has a value of its own. Those that are known add up to
    1: the last one, without `values`, is what no parameter alone explains.
    """

    name: str
    share: float | None
    values: tuple[ValueMean, ...]


class NotTried(Struct, frozen=True, kw_only=True):
    """Configurations without a measurement; `ordinals` are empty where they were never made."""

    count: PositiveInt
    ordinals: tuple[int, ...]
    reason: str


class SearchCost(Struct, frozen=True, kw_only=True):
    """Of all attempts. `measuring_gpu_seconds` are those in which load was measured; `cost` None: a
    GPU model without a price. `max_cost` and `max_gpu_hours` are the task's budget.
    """

    attempts: Count
    gpu_seconds: Seconds
    measuring_gpu_seconds: Seconds
    cost: float | None
    currency: str
    max_cost: float | None = None
    max_gpu_hours: float | None = None


class Deployments(Struct, frozen=True, kw_only=True):
    """The best configuration, ready to be used; a form that it cannot have is empty.

    YAML but for `command_line`. `inference_service` is for OME, with its ServingRuntime.
    """

    command_line: str = ""
    compose: str = ""
    inference_service: str = ""
    deployment: str = ""
    notes: tuple[str, ...] = ()


class ParetoPoint(Struct, frozen=True, kw_only=True):
    """A configuration that no other beats in both; tokens per second of each GPU."""

    ordinal: PositiveInt
    mean_e2e_latency: Seconds
    throughput_per_gpu: float


class FrontPoint(Struct, frozen=True, kw_only=True):
    """A configuration that no other beats in all objectives of the task; `measures` by their names,
    those left out that were not measured.
    """

    ordinal: PositiveInt
    parameters: dict[str, Any]
    measures: dict[str, float]


class ReportedEngine(Struct, frozen=True, kw_only=True):
    """One engine of a task over several, by its name for people: how many of its configurations
    were tried and measured, and the best of them. `worse_percent` as in `ReportedExperiment`;
    `remark` is why there is none.
    """

    title: str
    experiments: Count
    measured: Count
    best: PositiveInt | None = None
    score: float | None = None
    worse_percent: float | None = None
    remark: str = ""


class TaskReport(View, frozen=True, kw_only=True, tag="gateway.task_report"):
    """`baseline` is the task's first configuration, if it was measured; `changes` lead from it to
    the best one. `others` are the measured experiments beside the best, best first. `missing` names
    services whose part is not there because they did not answer. `front` is of a task with several
    objectives, best by the first one first. `datasets` are those that prompts were of and `traces`
    those of requests, more than one where the file changed meanwhile. `engines` are of a task over
    several, best first.
    """

    task_id: UUID
    task_name: str
    state: TaskState
    objective: Objective
    measure: str
    verdict: str
    simulated: bool
    experiments: Count
    succeeded: Count
    best: ReportedExperiment | None = None
    baseline: ReportedExperiment | None = None
    changes: tuple[ParameterChange, ...] = ()
    importance: tuple[ParameterImportance, ...] = ()
    others: tuple[ReportedExperiment, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    cost: SearchCost | None = None
    deployments: Deployments = Deployments()
    notes: tuple[str, ...] = ()
    stop_reason: StopReason | None = None
    trust: TrustVerdict | None = None
    pareto: tuple[ParetoPoint, ...] = ()
    missing: tuple[str, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    datasets: tuple[DatasetUse, ...] = ()
    engines: tuple[ReportedEngine, ...] = ()
    traces: tuple[TraceUse, ...] = ()
