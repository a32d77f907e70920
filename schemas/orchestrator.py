"""Tasks and their experiments: commands, facts and views."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta

from schemas.base import (
    Command,
    Count,
    Event,
    GivenReason,
    ListQuery,
    ListView,
    Namespace,
    NodeId,
    PositiveInt,
    Query,
    ScopedCommand,
    UtcDatetime,
    View,
)
from schemas.benchmark import BenchmarkMetrics, BenchmarkTool
from schemas.checks import Finding
from schemas.executor import AttemptOutcome, EngineSpec, Failure, FailureKind
from schemas.gpu_info import GpuInfo
from schemas.gpu_request import ClusterPlacement, DeviceGrant, GpuRequest, Reason
from schemas.results import GpuMonitoring
from schemas.slo import SloVerdict
from schemas.task import DeploymentMode, MemorySource, Objective, StopReason, Strategy, TaskFile
from schemas.trust import RunInfo, TrustVerdict


class TaskState(StrEnum):
    """accepted -> running <-> paused -> completed (at least one success) | failed | cancelled."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ExperimentState(StrEnum):
    """pending -> waiting -> starting -> running -> succeeded | failed | cancelled."""

    PENDING = "pending"
    WAITING = "waiting"  # for GPUs
    STARTING = "starting"  # granted, the executor has been told
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED_TASK_STATES = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})
FINISHED_EXPERIMENT_STATES = frozenset(
    {ExperimentState.SUCCEEDED, ExperimentState.FAILED, ExperimentState.CANCELLED}
)


class SubmitTask(Command, frozen=True, kw_only=True, tag="orchestrator.submit_task"):
    """Store a task and its experiments and run them. The sender chooses `task_id`."""

    speaker_field: ClassVar[str | None] = "namespace"
    task_id: UUID
    namespace: Namespace = "default"
    task: TaskFile


class CancelTask(ScopedCommand, frozen=True, kw_only=True, tag="orchestrator.cancel_task"):
    """Stop a task: what waits is withdrawn, what runs is stopped."""

    task_id: UUID
    reason: GivenReason = ""


class PauseTask(ScopedCommand, frozen=True, kw_only=True, tag="orchestrator.pause_task"):
    """Start no further experiment; what runs goes on."""

    task_id: UUID


class ResumeTask(ScopedCommand, frozen=True, kw_only=True, tag="orchestrator.resume_task"):
    """Go on with a paused task."""

    task_id: UUID


class TaskEvent(Event, frozen=True, kw_only=True):
    """What all task facts carry."""

    key_field: ClassVar[str | None] = "task_id"
    task_id: UUID
    namespace: Namespace
    task_name: str


class TaskAccepted(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_accepted"):
    """Stored with `experiments` experiments; `cut` were left out by `max_iterations`. A search
    tries so many at most, and stores them one by one.
    """

    experiments: Count
    cut: Count


class TaskStarted(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_started"):
    """The first experiment asked for GPUs."""


class TaskPaused(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_paused"):
    """No further experiment starts."""


class TaskResumed(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_resumed"):
    """Experiments start again."""


class TaskCompleted(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_completed"):
    """Every experiment ended and at least one succeeded."""

    best_experiment_id: UUID | None = None  # None: no success could be scored
    succeeded: Count
    failed: Count
    stop_reason: StopReason | None = None


class TaskFailed(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_failed"):
    """Every experiment ended and none succeeded."""

    reason: str
    stop_reason: StopReason | None = None


class TaskCancelled(TaskEvent, frozen=True, kw_only=True, tag="orchestrator.task_cancelled"):
    """Stopped on request; nothing of it runs any more."""

    reason: str


class ExperimentEvent(Event, frozen=True, kw_only=True):
    """What all experiment facts carry. `ordinal` counts from 1 in the order of expansion."""

    key_field: ClassVar[str | None] = "experiment_id"
    experiment_id: UUID
    task_id: UUID
    namespace: Namespace
    ordinal: PositiveInt


class ExperimentWaiting(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_waiting"
):
    """Asked for GPUs under this reservation."""

    reservation_id: UUID
    attempt_number: PositiveInt


class ExperimentStarting(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_starting"
):
    """GPUs granted, the executor is being told. With `cluster` there are no `devices`."""

    reservation_id: UUID
    executor_id: NodeId
    devices: tuple[DeviceGrant, ...]
    cluster: ClusterPlacement | None = None


class ExperimentRunning(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_running"
):
    """The executor started the attempt."""

    executor_id: NodeId
    attempt_id: UUID


class ExperimentRetrying(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_retrying"
):
    """An attempt was interrupted, or failed in a way that may pass, and will be repeated, not on
    `avoided_node_ids` if others can run it. `failure_kind` is why it did not succeed.
    """

    attempt_number: PositiveInt
    reason: str
    failure_kind: FailureKind | None = None
    avoided_node_ids: tuple[NodeId, ...] = ()


class ExperimentSucceeded(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_succeeded"
):
    """Smaller scores are better for minimize_*, larger for maximize_*; None: nothing to score."""

    objective_score: float | None
    metrics: BenchmarkMetrics


class ExperimentFailed(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_failed"
):
    """Ended without a measurement."""

    reason: str
    failure: Failure | None = None


class ExperimentCancelled(
    ExperimentEvent, frozen=True, kw_only=True, tag="orchestrator.experiment_cancelled"
):
    """Withdrawn or stopped on request."""

    reason: str


class GetTask(Query, frozen=True, kw_only=True, tag="orchestrator.get_task"):
    """Answered by `TaskView`."""

    task_id: UUID


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
    or their `task_id`. `after_experiment_id` is an older form of `cursor`, which goes before it.
    """

    task_id: UUID | None = None
    states: tuple[ExperimentState, ...] = ()
    limit: Annotated[int, Meta(ge=1, le=5000)] = 500
    after_experiment_id: UUID | None = None
    archived: bool = False
    namespace: Namespace | None = None
    node_id: NodeId | None = None


class ValidateTask(Query, frozen=True, kw_only=True, tag="orchestrator.validate_task"):
    """What would this task become here? Answered by `TaskPlan`; stores nothing."""

    namespace: Namespace = "default"
    task: TaskFile


class PlannedExperiment(View, frozen=True, kw_only=True, tag="orchestrator.planned_experiment"):
    """One configuration with the GPUs it asks for, and what was known before it takes any."""

    ordinal: PositiveInt
    parameters: dict[str, Any]
    engine: EngineSpec
    request: GpuRequest
    memory_source: MemorySource = MemorySource.MODEL_NAME
    preflight: tuple[Finding, ...] = ()


class TaskPlan(View, frozen=True, kw_only=True, tag="orchestrator.task_plan"):
    """A task's expansion. `missing` is what this installation lacks to run it; empty if nothing.

    A search has no `experiments` yet; it tries `experiments_at_most`. `benchmark_tool` would
    measure every experiment; None if no node could run the task.
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


class TaskView(View, frozen=True, kw_only=True, tag="orchestrator.task"):
    """A task as the orchestrator has it. `notes` say what was cut or assumed.

    `archived`: it has been finished for so long that lists leave it out unless asked.
    `benchmark_tool` measures every experiment; None: an older release stored the task, and it is
    chosen when the next experiment starts. `imported_at`: the gateway has it from an export of
    another installation. `experiments_at_most`: a search proposes them one by one, and
    `experiments_total` are those so far; 0: unknown. `cut` configurations of a grid were left out.
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


class ExperimentList(ListView, frozen=True, kw_only=True, tag="orchestrator.experiments"):
    """Newest task first, then by ordinal. `next_after_experiment_id`: an older `next_cursor`."""

    experiments: tuple[ExperimentView, ...]
    next_after_experiment_id: UUID | None = None
