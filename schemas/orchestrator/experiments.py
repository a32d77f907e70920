"""Tasks and their experiments: commands, facts and views."""

from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from schemas.audit import CommandRecorded
from schemas.base import (
    Command,
    Count,
    Event,
    GivenReason,
    Live,
    Namespace,
    NodeId,
    Person,
    PositiveInt,
    ScopedCommand,
)
from schemas.executor.attempts import EngineSpec, Failure, FailureKind
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.task_file import StopReason, TaskFile


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
    STARTING = "starting"  # granted, the executor has been commanded to start
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED_TASK_STATES = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED})
FINISHED_EXPERIMENT_STATES = frozenset(
    {ExperimentState.SUCCEEDED, ExperimentState.FAILED, ExperimentState.CANCELLED}
)


class SubmitTask(Command, frozen=True, kw_only=True, tag="orchestrator.submit_task"):
    """Store a task and its experiments and run them. The sender chooses `task_id`; `requester` is
    who asks, which the gateway fills in.
    """

    speaker_field: ClassVar[str | None] = "namespace"
    task_id: UUID
    namespace: Namespace = "default"
    task: TaskFile
    requester: Person = ""


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
    """What all task facts carry. `requester` is empty where no person is known."""

    key_field: ClassVar[str | None] = "task_id"
    task_id: UUID
    namespace: Namespace
    task_name: str
    requester: str = ""


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


class OrchestratorCommandRecorded(
    CommandRecorded, frozen=True, kw_only=True, tag="orchestrator.command_recorded"
):
    """Of the orchestrator's commands."""


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
    """GPUs granted, the command to start is on its way. With `cluster` there are no `devices`."""

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


class WaitingStart(Struct, frozen=True, kw_only=True):
    """What an experiment that waits for GPUs will need: its engine's image, its model."""

    task_id: UUID
    experiment_id: UUID
    attempt_id: UUID
    engine: EngineSpec


class StartsWaiting(Live, frozen=True, kw_only=True, tag="orchestrator.starts_waiting"):
    """All that had best be made ready on this executor's node, next first; it replaces what was
    said before. Told every 15 s, to every executor that is present.
    """

    key_field: ClassVar[str | None] = "executor_id"
    executor_id: NodeId
    starts: tuple[WaitingStart, ...]
