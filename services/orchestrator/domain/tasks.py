"""A task as a whole: starting, pausing, cancelling, ending."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.base import Event
from schemas.errors import ErrorCode
from schemas.orchestrator import (
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
from services.orchestrator.domain.records import Task, TaskDecision, task_fact
from shared.errors import RefusedError

Tally = Mapping[ExperimentState, int]


def accept(task: Task, *, experiments: int, cut: int, now: datetime) -> TaskDecision:
    """A new task is stored."""
    fields = {"experiments": experiments, "cut": cut}
    return _changed(task, TaskState.ACCEPTED, TaskAccepted, now, fields)


def start(task: Task, now: datetime) -> TaskDecision | None:
    """The first experiment asks for GPUs."""
    if task.state is not TaskState.ACCEPTED:
        return None
    return _changed(task, TaskState.RUNNING, TaskStarted, now, {}, started_at=now)


def pause(task: Task, now: datetime) -> TaskDecision | None:
    """No further experiment is to start; None if it is paused already. Raises RefusedError."""
    _require_unfinished(task)
    if task.state is TaskState.PAUSED:
        return None
    return _changed(task, TaskState.PAUSED, TaskPaused, now, {})


def resume(task: Task, now: datetime) -> TaskDecision | None:
    """Experiments may start again; None if they may already. Raises RefusedError."""
    _require_unfinished(task)
    if task.state is not TaskState.PAUSED:
        return None
    return _changed(task, TaskState.RUNNING, TaskResumed, now, {})


def request_cancel(task: Task, reason: str) -> Task | None:
    """The task is to stop; None if it is being stopped or was. Raises RefusedError if it ended."""
    if task.cancel_requested or task.state is TaskState.CANCELLED:
        return None
    _require_unfinished(task)
    return replace(task, cancel_requested=True, cancel_reason=reason or "cancelled on request")


def settle(task: Task, tally: Tally, best: UUID | None, now: datetime) -> TaskDecision | None:
    """The task's end, once every experiment has ended; None before."""
    if task.is_finished or any(tally[s] for s in tally if s not in FINISHED_EXPERIMENT_STATES):
        return None
    succeeded = tally.get(ExperimentState.SUCCEEDED, 0)
    failed = tally.get(ExperimentState.FAILED, 0)
    if task.cancel_requested:
        return _changed(
            task, TaskState.CANCELLED, TaskCancelled, now, {"reason": task.cancel_reason},
            reason=task.cancel_reason, finished_at=now,
        )  # fmt: skip
    if succeeded:
        fields = {"best_experiment_id": best, "succeeded": succeeded, "failed": failed}
        return _changed(
            task, TaskState.COMPLETED, TaskCompleted, now, fields,
            best_experiment_id=best, finished_at=now,
        )  # fmt: skip
    reason = f"none of {sum(tally.values())} experiments succeeded"
    return _changed(
        task, TaskState.FAILED, TaskFailed, now, {"reason": reason},
        reason=reason, finished_at=now,
    )  # fmt: skip


def _require_unfinished(task: Task) -> None:
    if task.is_finished or task.cancel_requested:
        state = "being cancelled" if not task.is_finished else task.state.value
        raise RefusedError(
            ErrorCode.CONFLICT, f"expected an unfinished task, {task.task_id} is {state}"
        )


def _changed(
    task: Task,
    state: TaskState,
    event: type[Event],
    now: datetime,
    fields: Mapping[str, Any],
    **changes: Any,
) -> TaskDecision:
    changed = replace(task, state=state, revision=task.revision + 1, **changes)
    return TaskDecision(task=changed, events=(task_fact(event, changed, now, fields),))
