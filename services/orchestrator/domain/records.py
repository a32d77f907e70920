"""Tasks, experiments and attempts as the orchestrator stores them, and what a decision carries."""

from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import Command, Event, tag_of
from schemas.executor.attempts import AttemptOutcome, EngineSpec, Failure, FailureKind
from schemas.gpus.checks import Finding
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuModel, GpuRequest
from schemas.orchestrator.deletion import ExperimentDeleted
from schemas.orchestrator.experiments import (
    FINISHED_EXPERIMENT_STATES,
    FINISHED_TASK_STATES,
    ExperimentCancelled,
    ExperimentFailed,
    ExperimentState,
    ExperimentSucceeded,
    TaskState,
)
from schemas.orchestrator.views import MemoryEstimate, PlannedExperiment
from schemas.results.prices import GpuPrices
from schemas.task.benchmark import BenchmarkMetrics, BenchmarkTool
from schemas.task.quality import QualityAnswers
from schemas.task.slo import SloVerdict
from schemas.task.task_file import DeploymentMode, MemorySource, StopReason, TaskFile
from schemas.task.trust import RunInfo, TrustVerdict
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.warm_start import WarmStart


class Task(Struct, frozen=True, kw_only=True):
    """One row of `task`.

    `stop_reason`: no further configuration is tried. A search whose is None goes on.
    `cut` configurations of a grid were left out. `prices` are those of its `max_cost`. `gpu_model`
    is what its first grant was of, and what the others have to be; None as well with mixed models.
    `largest_gpu_mb` was the memory of the largest GPU that it may take; None: not known.
    """

    task_id: UUID
    namespace: str
    task_name: str
    state: TaskState
    mode: DeploymentMode
    file: TaskFile
    created_at: datetime
    revision: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    cancel_reason: str = ""
    best_experiment_id: UUID | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    benchmark_tool: BenchmarkTool = BenchmarkTool.BUILTIN
    experiments_at_most: int = 0
    stop_reason: StopReason | None = None
    cut: int = 0
    trust: TrustVerdict | None = None
    warm: WarmStart | None = None
    prices: GpuPrices | None = None
    prior: Prior | None = None
    gpu_model: GpuModel | None = None
    was_preempted: bool = False
    requester: str = ""
    largest_gpu_mb: int | None = None

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED_TASK_STATES

    @property
    def largest_memory_mb(self) -> int | None:
        """Return the memory of the largest GPU that it may take: of the model that it is bound to
        by its first grant.
        """
        bound = self.gpu_model
        if bound is not None and bound.memory_total_mb is not None:
            return bound.memory_total_mb
        return self.largest_gpu_mb

    @property
    def may_propose(self) -> bool:
        """Return whether more experiments than it has may follow."""
        is_search = self.file.optimization.strategy.traits.is_search
        return is_search and self.stop_reason is None and not self.cancel_requested

    @property
    def may_check(self) -> bool:
        """Return whether runs may follow that show how far its best experiment can be trusted."""
        is_asked = self.file.optimization.is_trust_asked and self.trust is None
        return is_asked and not self.cancel_requested

    @property
    def may_start_experiments(self) -> bool:
        """Return whether further experiments may request GPUs."""
        return self.state in {TaskState.ACCEPTED, TaskState.RUNNING} and not self.cancel_requested


class Experiment(Struct, frozen=True, kw_only=True):
    """One row of `experiment`. `summary_attempt_id`: the attempt that `metrics` are of; they may
    come before its end.

    `failed_attempts` are counted by kind, apart from interrupted ones, of which `stopped_attempts`
    were cut off by an executor that was stopped in order, or preempted: those cost none of
    `max_attempts`. The
    next attempt runs on one of `avoided_node_ids` only if no other node can run it. `task_name` is
    empty if it was stored by a release that did not copy it. `answers`: of its quality
    probe. `predicted_score` is its task's prior's.
    """

    experiment_id: UUID
    task_id: UUID
    namespace: str
    ordinal: int
    state: ExperimentState
    parameters: dict[str, Any]
    engine: EngineSpec
    request: GpuRequest
    created_at: datetime
    revision: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    objective_score: float | None = None
    metrics: BenchmarkMetrics | None = None
    summary_attempt_id: UUID | None = None
    failure: Failure | None = None
    reason: str = ""
    interrupted_attempts: int = 0
    stopped_attempts: int = 0
    failed_attempts: dict[FailureKind, int] = {}
    avoided_node_ids: tuple[str, ...] = ()
    task_name: str = ""
    proposal: str = ""
    memory_source: MemorySource | None = None
    slo: SloVerdict | None = None
    run: RunInfo = RunInfo()
    preflight: tuple[Finding, ...] = ()
    answers: QualityAnswers | None = None
    predicted_score: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_estimate: MemoryEstimate | None = None

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED_EXPERIMENT_STATES

    @property
    def failures_counted(self) -> int:
        """Count the attempts that failed."""
        return sum(self.failed_attempts.values())

    @property
    def attempts_made(self) -> int:
        """Count the attempts that have ended without a measurement."""
        return self.interrupted_attempts + self.failures_counted

    @property
    def attempts_spent(self) -> int:
        """Count the attempts of `max_attempts` that are used up."""
        return self.attempts_made - self.stopped_attempts


def new_experiment(
    task: Task,
    planned: PlannedExperiment,
    experiment_id: UUID,
    now: datetime,
    proposal: str = "",
    run: RunInfo | None = None,
    predicted_score: float | None = None,
) -> Experiment:
    return Experiment(
        experiment_id=experiment_id,
        task_id=task.task_id,
        namespace=task.namespace,
        ordinal=planned.ordinal,
        state=ExperimentState.PENDING,
        parameters=planned.parameters,
        engine=planned.engine,
        request=planned.request,
        created_at=now,
        task_name=task.task_name,
        proposal=proposal,
        run=run or RunInfo(),
        preflight=planned.preflight,
        predicted_score=predicted_score,
        power_limit_w=planned.power_limit_w,
        sm_clock_mhz=planned.sm_clock_mhz,
        memory_estimate=planned.memory_estimate,
    )


def same_again(
    first: Experiment, ordinal: int, run: RunInfo, experiment_id: UUID, now: datetime, reason: str
) -> Experiment:
    """Another run of its configuration."""
    return Experiment(
        experiment_id=experiment_id,
        task_id=first.task_id,
        namespace=first.namespace,
        ordinal=ordinal,
        state=ExperimentState.PENDING,
        parameters=first.parameters,
        engine=first.engine,
        request=first.request,
        created_at=now,
        task_name=first.task_name,
        proposal=reason,
        memory_source=first.memory_source,
        run=run,
        preflight=first.preflight,
        predicted_score=first.predicted_score,
        power_limit_w=first.power_limit_w,
        sm_clock_mhz=first.sm_clock_mhz,
        memory_estimate=first.memory_estimate,
    )


class Attempt(Struct, frozen=True, kw_only=True):
    """One row of `attempt`: one reservation of an experiment and what ran under it.

    It is closed when nothing of it runs and nothing will; an attempt that was granted then has its
    one outcome. `is_accepted`: the executor renews the lease from there on. It should have ended by
    `deadline_at`; `overdue_at` is when its stop was sent because it had not. `peak_memory_mb`: see
    `ExperimentSummarized`. Until `kept_until` its engine stays up for a further run; it is
    `held_until` then, where that is later than its end. It goes on itself with the engine of the
    attempt `kept_from`, started for the run `kept_start`. `has_reservation` False: of a server
    that runs already, for which the scheduler grants nothing.
    """

    attempt_id: UUID
    experiment_id: UUID
    task_id: UUID
    attempt_number: int
    reservation_id: UUID
    requested_at: datetime
    reservation_revision: int = -1
    reservation_ended: bool = False
    has_reservation: bool = True
    attempt_revision: int = -1
    executor_id: str | None = None
    epoch: int | None = None
    lease_ttl_seconds: float | None = None
    devices: tuple[DeviceGrant, ...] = ()
    cluster: ClusterPlacement | None = None
    benchmark_tool: BenchmarkTool | None = None
    is_accepted: bool = False
    deadline_at: datetime | None = None
    overdue_at: datetime | None = None
    phase: str | None = None
    outcome: AttemptOutcome | None = None
    image_digest: str | None = None
    failure: Failure | None = None
    executor_stopped: bool = False
    is_preempted: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    closed_at: datetime | None = None
    peak_memory_mb: int | None = None
    kept_until: datetime | None = None
    held_until: datetime | None = None
    kept_from: UUID | None = None
    kept_start: int | None = None

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes of its devices, the coordinating one first."""
        return tuple(dict.fromkeys(device.node_id for device in self.devices))


class Decision(Struct, frozen=True, kw_only=True):
    """What follows from an event: rows to store, events to publish and commands to send.

    `task` is its row where that changed too.
    """

    experiment: Experiment
    task: Task | None = None
    attempt: Attempt | None = None
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()


class TaskDecision(Struct, frozen=True, kw_only=True):
    """What follows for the task itself."""

    task: Task
    events: tuple[Event, ...] = ()


def command_id(subject_id: UUID, command: type[Command]) -> UUID:
    """The id of the one command of this kind about a subject: a repetition is recognised."""
    return uuid5(subject_id, tag_of(command))


def event_id(aggregate_id: UUID, revision: int) -> UUID:
    """The id of an aggregate's event of that revision."""
    return uuid5(aggregate_id, str(revision))


class ExperimentFields(TypedDict):
    """What every event of an experiment carries."""

    message_id: UUID
    occurred_at: datetime
    revision: int
    experiment_id: UUID
    task_id: UUID
    namespace: str
    ordinal: int


def fields_of(experiment: Experiment, now: datetime) -> ExperimentFields:
    """Return the fields for the event of the experiment's newest revision."""
    return {
        "message_id": event_id(experiment.experiment_id, experiment.revision),
        "occurred_at": now,
        "revision": experiment.revision,
        "experiment_id": experiment.experiment_id,
        "task_id": experiment.task_id,
        "namespace": experiment.namespace,
        "ordinal": experiment.ordinal,
    }


class Ended(Struct, frozen=True, kw_only=True):
    """How an experiment ends."""

    state: ExperimentState
    reason: str = ""
    failure: Failure | None = None
    objective_score: float | None = None


def delete(experiment: Experiment, now: datetime) -> ExperimentDeleted:
    """The experiment is forgotten."""
    last = replace(experiment, revision=experiment.revision + 1)
    return ExperimentDeleted(**fields_of(last, now))


def end(
    experiment: Experiment, ended: Ended, now: datetime, attempt: Attempt | None = None
) -> Decision:
    """The experiment's end; `attempt` is its last one, where it changed with it."""
    last = replace(
        experiment,
        state=ended.state,
        revision=experiment.revision + 1,
        finished_at=now,
        reason=ended.reason,
        failure=ended.failure,
        objective_score=ended.objective_score,
    )
    fields = fields_of(last, now)
    event: Event
    match ended.state:
        case ExperimentState.SUCCEEDED:
            metrics = last.metrics or BenchmarkMetrics()
            event = ExperimentSucceeded(
                **fields, objective_score=ended.objective_score, metrics=metrics
            )
        case ExperimentState.FAILED:
            event = ExperimentFailed(**fields, reason=ended.reason, failure=ended.failure)
        case _:
            event = ExperimentCancelled(**fields, reason=ended.reason)
    return Decision(experiment=last, attempt=attempt, events=(event,))
