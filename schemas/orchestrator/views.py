"""Queries about tasks and experiments, and their answers."""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    ListQuery,
    ListView,
    Mebibytes,
    Namespace,
    NodeId,
    PositiveInt,
    Query,
    UtcDatetime,
    View,
)
from schemas.executor.attempts import AttemptOutcome, EngineSpec, Failure
from schemas.gpus.checks import Finding
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_info import GpuInfo
from schemas.gpus.gpu_request import GpuModel, GpuRequest
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.results.measurements import GpuMonitoring
from schemas.scheduler.reasons import Reason
from schemas.task.benchmark import BenchmarkMetrics, BenchmarkTool
from schemas.task.objectives import Objective
from schemas.task.slo import SloVerdict
from schemas.task.strategies import Strategy
from schemas.task.task_file import DeploymentMode, MemorySource, StopReason, TaskFile
from schemas.task.trust import RunInfo, TrustVerdict


class GetTask(Query, frozen=True, kw_only=True, tag="orchestrator.get_task"):
    """Answered by `TaskView`, with its `spending` where that is asked for."""

    task_id: UUID
    with_spending: bool = False


class ListTasks(ListQuery, frozen=True, kw_only=True, tag="orchestrator.list_tasks"):
    """Answered by `TaskList`, newest first; with `archived` also those that are."""

    namespace: Namespace | None = None
    states: tuple[TaskState, ...] = ()
    archived: bool = False


class GetExperiment(Query, frozen=True, kw_only=True, tag="orchestrator.get_experiment"):
    """Answered by `ExperimentView`."""

    experiment_id: UUID


class ListExperiments(ListQuery, frozen=True, kw_only=True, tag="orchestrator.list_experiments"):
    """Experiments, newest task first, then by ordinal. Answered by `ExperimentList`.

    With a `node_id` only those with an attempt on it; those of archived tasks only with `archived`
    or their `task_id`.
    """

    task_id: UUID | None = None
    states: tuple[ExperimentState, ...] = ()
    limit: Annotated[int, Meta(ge=1, le=5000)] = 500
    archived: bool = False
    namespace: Namespace | None = None
    node_id: NodeId | None = None


class ValidateTask(Query, frozen=True, kw_only=True, tag="orchestrator.validate_task"):
    """What would this task become here? Answered by `TaskPlan`; stores nothing."""

    namespace: Namespace = "default"
    task: TaskFile


class MemoryEstimate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memory that an experiment needs of each GPU by a rule of thumb, whose `terms` are in words.

    It is not what is asked for where the largest GPU that there is has less.
    """

    memory_mb: Mebibytes
    source: MemorySource
    terms: str = ""


class PlannedExperiment(View, frozen=True, kw_only=True, tag="orchestrator.planned_experiment"):
    """One configuration with the GPUs it asks for, and what was known before it takes any."""

    ordinal: PositiveInt
    parameters: dict[str, Any]
    engine: EngineSpec
    request: GpuRequest
    memory_source: MemorySource = MemorySource.MODEL_NAME
    preflight: tuple[Finding, ...] = ()
    power_limit_w: float | None = None
    sm_clock_mhz: PositiveInt | None = None
    memory_estimate: MemoryEstimate | None = None


class PlanCost(Struct, frozen=True, kw_only=True):
    """What a plan costs at most on the cheapest, and on the dearest, of the GPU models that it may
    take.
    """

    least: float
    most: float
    currency: str


class PlanStart(Struct, frozen=True, kw_only=True):
    """When the largest experiment would have its GPUs; `expected_at` None: now, or not known."""

    is_now: bool
    expected_at: UtcDatetime | None = None
    message: str = ""


class TaskPlan(View, frozen=True, kw_only=True, tag="orchestrator.task_plan"):
    """A task's expansion. `missing` is what this installation lacks to run it; empty if nothing.

    A search has no `experiments` yet; it tries `experiments_at_most`, of which `samples` have every
    different request. `benchmark_tool` would measure every experiment; None if no node could run
    the task. `gpu_hours_at_most` are those of every experiment to its time limit, within the
    budget. `cost_at_most` None: its GPUs have no price; that and `start` are the gateway's.
    """

    mode: DeploymentMode
    strategy: Strategy
    objective: Objective
    total: Count
    cut: Count
    experiments: tuple[PlannedExperiment, ...]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    benchmark_tool: BenchmarkTool | None = None
    experiments_at_most: Count = 0
    samples: tuple[PlannedExperiment, ...] = ()
    gpu_hours_at_most: float | None = None
    cost_at_most: PlanCost | None = None
    start: PlanStart | None = None


class TaskSpending(Struct, frozen=True, kw_only=True):
    """What the attempts of a task have held so far, and how long it may still take.

    `cost` None: a GPU of theirs has no price, or the prices are unknown now. `seconds_left` is by
    the mean of the attempts that have ended, and as if GPUs were free; None: it is over, or nothing
    is known yet.
    """

    gpu_hours: float
    cost: float | None = None
    currency: str = ""
    seconds_left: float | None = None


class TaskView(View, frozen=True, kw_only=True, tag="orchestrator.task"):
    """A task as the orchestrator has it. `notes` say what was cut or assumed, `gpu_model` on which
    GPUs all of its experiments run, once the first has any.

    `archived`: it has been finished for so long that lists leave it out unless asked.
    `benchmark_tool` measures every experiment. `imported_at`: the gateway has it from an export of
    another installation. `experiments_at_most`: a search proposes them one by one, and
    `experiments_total` are those so far; 0: unknown. `cut` configurations of a grid were left out.
    `spending` is told where it is asked for, and not in lists.
    `requester` is the person who submitted it; empty: not known.
    """

    task_id: UUID
    namespace: Namespace
    task_name: str
    description: str
    state: TaskState
    mode: DeploymentMode
    objective: Objective
    revision: Count
    created_at: UtcDatetime
    started_at: UtcDatetime | None = None
    finished_at: UtcDatetime | None = None
    cancel_requested: bool = False
    experiments_total: Count = 0
    experiments_by_state: dict[str, int] = {}
    best_experiment_id: UUID | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    task: TaskFile | None = None
    benchmark_tool: BenchmarkTool | None = None
    archived: bool = False
    imported_at: UtcDatetime | None = None
    experiments_at_most: Count = 0
    stop_reason: StopReason | None = None
    cut: Count = 0
    trust: TrustVerdict | None = None
    gpu_model: GpuModel | None = None
    spending: TaskSpending | None = None
    requester: str = ""


class TaskList(ListView, frozen=True, kw_only=True, tag="orchestrator.tasks"):
    """Tasks, newest first."""

    tasks: tuple[TaskView, ...]


class AttemptView(View, frozen=True, kw_only=True, tag="orchestrator.attempt"):
    """One attempt; outcome None while it is under way. `message`: what it waits for to be ready."""

    attempt_id: UUID
    attempt_number: PositiveInt
    reservation_id: UUID
    executor_id: NodeId | None = None
    outcome: AttemptOutcome | None = None
    phase: str | None = None
    failure: Failure | None = None
    started_at: UtcDatetime | None = None
    finished_at: UtcDatetime | None = None
    cluster: ClusterPlacement | None = None
    message: str = ""
    image_digest: str | None = None


class ExperimentView(View, frozen=True, kw_only=True, tag="orchestrator.experiment"):
    """As the orchestrator has it; the gateway adds the results' `gpu_monitoring`.

    `failed_attempts` are counted apart from interrupted ones. `objective_score` leaves the failed
    levels of `metrics` out: it compares only experiments that failed at the same loads. `proposal`:
    why a search chose it. `memory_source` is that of `request.min_memory_mb`; None: unknown.
    `prepared` is what was made ready for it where it may start, while it waits for GPUs.
    """

    experiment_id: UUID
    task_id: UUID
    namespace: Namespace
    ordinal: PositiveInt
    state: ExperimentState
    revision: Count
    parameters: dict[str, Any]
    engine: EngineSpec
    request: GpuRequest
    created_at: UtcDatetime
    started_at: UtcDatetime | None = None
    finished_at: UtcDatetime | None = None
    reservation_id: UUID | None = None
    executor_id: NodeId | None = None
    objective_score: float | None = None
    metrics: BenchmarkMetrics | None = None
    gpu_info: GpuInfo | None = None
    gpu_monitoring: GpuMonitoring | None = None
    attempts: tuple[AttemptView, ...] = ()
    interrupted_attempts: Count = 0
    failure: Failure | None = None
    waiting_reasons: tuple[Reason, ...] = ()
    reason: str = ""
    failed_attempts: Count = 0
    task_name: str = ""
    imported_at: UtcDatetime | None = None
    proposal: str = ""
    memory_source: MemorySource | None = None
    slo: SloVerdict | None = None
    run: RunInfo = RunInfo()
    preflight: tuple[Finding, ...] = ()
    predicted_score: float | None = None
    prepared: str = ""
    memory_estimate: MemoryEstimate | None = None


class ExperimentList(ListView, frozen=True, kw_only=True, tag="orchestrator.experiments"):
    """Newest task first, then by ordinal."""

    experiments: tuple[ExperimentView, ...]
