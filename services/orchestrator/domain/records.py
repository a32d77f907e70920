"""Tasks, experiments and attempts as the orchestrator keeps them, and what a decision carries."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct

from schemas.base import Command, Event, tag_of
from schemas.benchmark import BenchmarkMetrics, BenchmarkTool
from schemas.executor import AttemptOutcome, EngineSpec, Failure, FailureKind
from schemas.gpu_request import DeviceGrant, GpuRequest
from schemas.orchestrator import (
    FINISHED_EXPERIMENT_STATES,
    FINISHED_TASK_STATES,
    ExperimentState,
    TaskState,
)
from schemas.task import DeploymentMode, TaskFile


class Task(Struct, frozen=True, kw_only=True):
    """One row of `task`. `benchmark_tool` None: stored by a release that did not choose one."""

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
    benchmark_tool: BenchmarkTool | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.state in FINISHED_TASK_STATES

    @property
    def may_start_experiments(self) -> bool:
        """Whether further experiments may ask for GPUs."""
        return self.state in {TaskState.ACCEPTED, TaskState.RUNNING} and not self.cancel_requested


class Experiment(Struct, frozen=True, kw_only=True):
    """One row of `experiment`. A `summary` that came before its attempt's end waits for it.

    `failed_attempts` are counted by kind, apart from interrupted ones. The next attempt keeps off
    `avoided_node_ids` if other nodes can run it.
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
    failed_attempts: dict[FailureKind, int] = {}
    avoided_node_ids: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.state in FINISHED_EXPERIMENT_STATES

    @property
    def failures_counted(self) -> int:
        """How many of its attempts failed."""
        return sum(self.failed_attempts.values())

    @property
    def attempts_made(self) -> int:
        """How many of its attempts have ended without a measurement."""
        return self.interrupted_attempts + self.failures_counted


class Attempt(Struct, frozen=True, kw_only=True):
    """One row of `attempt`: one reservation of an experiment and what ran under it.

    It is closed when nothing of it runs and nothing will; an attempt that was granted then has its
    one outcome. `is_accepted`: the executor keeps the lease from there on. It should have ended by
    `deadline_at`; `overdue_at` is when it was told to stop because it had not.
    """

    attempt_id: UUID
    experiment_id: UUID
    task_id: UUID
    attempt_number: int
    reservation_id: UUID
    requested_at: datetime
    reservation_revision: int = -1
    reservation_ended: bool = False
    attempt_revision: int = -1
    executor_id: str | None = None
    epoch: int | None = None
    lease_ttl_seconds: float | None = None
    devices: tuple[DeviceGrant, ...] = ()
    benchmark_tool: BenchmarkTool | None = None
    is_accepted: bool = False
    deadline_at: datetime | None = None
    overdue_at: datetime | None = None
    phase: str | None = None
    outcome: AttemptOutcome | None = None
    failure: Failure | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    closed_at: datetime | None = None

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes of its devices, the coordinating one first."""
        return tuple(dict.fromkeys(device.node_id for device in self.devices))


class Decision(Struct, frozen=True, kw_only=True):
    """What follows from a fact: rows to store, events to tell and commands to send."""

    experiment: Experiment
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


def fact_id(aggregate_id: UUID, revision: int) -> UUID:
    """The id of an aggregate's event of that revision."""
    return uuid5(aggregate_id, str(revision))


def experiment_fact(
    event: type[Event], experiment: Experiment, now: datetime, fields: Mapping[str, Any]
) -> Event:
    """The event that tells of the experiment's newest revision."""
    return event(
        message_id=fact_id(experiment.experiment_id, experiment.revision),
        occurred_at=now,
        revision=experiment.revision,
        **{
            "experiment_id": experiment.experiment_id,
            "task_id": experiment.task_id,
            "namespace": experiment.namespace,
            "ordinal": experiment.ordinal,
            **fields,
        },
    )


def task_fact(event: type[Event], task: Task, now: datetime, fields: Mapping[str, Any]) -> Event:
    """The event that tells of the task's newest revision."""
    return event(
        message_id=fact_id(task.task_id, task.revision),
        occurred_at=now,
        revision=task.revision,
        **{
            "task_id": task.task_id,
            "namespace": task.namespace,
            "task_name": task.task_name,
            **fields,
        },
    )
