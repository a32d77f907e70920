"""A task as a whole: starting, pausing, cancelling, ending."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict
from uuid import UUID

from msgspec.structs import replace

from schemas.base import Event
from schemas.errors import ErrorCode
from schemas.orchestrator.deletion import TaskDeleted
from schemas.orchestrator.experiments import (
    FINISHED_EXPERIMENT_STATES,
    ExperimentState,
    TaskAccepted,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskPaused,
    TaskResumed,
    TaskStarted,
    TaskState,
)
from services.orchestrator.domain.records import Task, TaskDecision, event_id
from shared.errors import RefusedError

Tally = Mapping[ExperimentState, int]


class TaskFields(TypedDict):
    """What every event of a task carries."""

    message_id: UUID
    occurred_at: datetime
    revision: int
    task_id: UUID
    namespace: str
    task_name: str
    requester: str


def accept(task: Task, *, experiments: int, cut: int, now: datetime) -> TaskDecision:
    """A new task is stored."""
    accepted = _change_state(task, TaskState.ACCEPTED)
    event = TaskAccepted(**_fields(accepted, now), experiments=experiments, cut=cut)
    return TaskDecision(task=accepted, events=(event,))


def start(task: Task, now: datetime) -> TaskDecision | None:
    """The first experiment requests GPUs."""
    if task.state is not TaskState.ACCEPTED:
        return None
    started = replace(_change_state(task, TaskState.RUNNING), started_at=now)
    return TaskDecision(task=started, events=(TaskStarted(**_fields(started, now)),))


def pause(task: Task, now: datetime) -> TaskDecision | None:
    """No further experiment is to start; None if it is paused already. Raises RefusedError."""
    _require_unfinished(task)
    if task.state is TaskState.PAUSED:
        return None
    paused = _change_state(task, TaskState.PAUSED)
    return TaskDecision(task=paused, events=(TaskPaused(**_fields(paused, now)),))


def resume(task: Task, now: datetime) -> TaskDecision | None:
    """Experiments may start again; None if they may already. Raises RefusedError."""
    _require_unfinished(task)
    if task.state is not TaskState.PAUSED:
        return None
    resumed = _change_state(task, TaskState.RUNNING)
    return TaskDecision(task=resumed, events=(TaskResumed(**_fields(resumed, now)),))


def request_cancel(task: Task, reason: str) -> Task | None:
    """The task is to stop; None if it is being stopped or was. Raises RefusedError if it ended."""
    if task.cancel_requested or task.state is TaskState.CANCELLED:
        return None
    _require_unfinished(task)
    return replace(task, cancel_requested=True, cancel_reason=reason or "cancelled on request")


def finish(task: Task, tally: Tally, best: UUID | None, now: datetime) -> TaskDecision | None:
    """The task's end, once every experiment has ended and none may follow; None before."""
    if task.is_finished or any(tally[s] for s in tally if s not in FINISHED_EXPERIMENT_STATES):
        return None
    if task.may_propose or task.may_check:
        return None
    succeeded = tally.get(ExperimentState.SUCCEEDED, 0)
    failed = tally.get(ExperimentState.FAILED, 0)
    if task.cancel_requested:
        ended = _end_task(task, TaskState.CANCELLED, task.cancel_reason, now)
        event: Event = TaskCancelled(**_fields(ended, now), reason=ended.reason)
    elif succeeded:
        ended = replace(_end_task(task, TaskState.COMPLETED, "", now), best_experiment_id=best)
        event = TaskCompleted(
            **_fields(ended, now),
            best_experiment_id=best,
            succeeded=succeeded,
            failed=failed,
            stop_reason=task.stop_reason,
        )
    else:
        reason = f"none of {sum(tally.values())} experiments succeeded"
        ended = _end_task(task, TaskState.FAILED, reason, now)
        event = TaskFailed(**_fields(ended, now), reason=reason, stop_reason=task.stop_reason)
    return TaskDecision(task=ended, events=(event,))


def delete(task: Task, *, experiments: int, now: datetime) -> TaskDeleted:
    """The task is forgotten. Raises RefusedError while something of it may run."""
    require_finished(task)
    deleted = _change_state(task, task.state)
    return TaskDeleted(**_fields(deleted, now), experiments=experiments)


def require_finished(task: Task) -> None:
    """Raises RefusedError with what ends it."""
    if not task.is_finished:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"task {task.task_name} is {task.state.value}, only a finished one can be deleted;"
            f" `gpusteward cancel {task.task_id}` ends it",
        )


def _require_unfinished(task: Task) -> None:
    if task.is_finished or task.cancel_requested:
        state = "being cancelled" if not task.is_finished else task.state.value
        raise RefusedError(
            ErrorCode.CONFLICT, f"expected an unfinished task, {task.task_id} is {state}"
        )


def _change_state(task: Task, state: TaskState) -> Task:
    return replace(task, state=state, revision=task.revision + 1)


def _end_task(task: Task, state: TaskState, reason: str, now: datetime) -> Task:
    return replace(_change_state(task, state), reason=reason, finished_at=now)


def _fields(task: Task, now: datetime) -> TaskFields:
    return {
        "message_id": event_id(task.task_id, task.revision),
        "occurred_at": now,
        "revision": task.revision,
        "task_id": task.task_id,
        "namespace": task.namespace,
        "task_name": task.task_name,
        "requester": task.requester,
    }
