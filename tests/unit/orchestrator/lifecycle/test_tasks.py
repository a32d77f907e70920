from typing import Any
from uuid import UUID

import pytest

from schemas.base import tag_of
from schemas.errors import ErrorCode
from schemas.orchestrator.experiments import ExperimentState as State
from schemas.orchestrator.experiments import TaskCompleted, TaskState
from schemas.task.task_file import StopReason
from services.orchestrator.domain.lifecycle import tasks
from services.orchestrator.domain.lifecycle.tasks import Tally
from shared.errors import RefusedError
from tests.support.worlds.orchestrator_records import NOW, make_file, make_task

BEST = UUID(int=9)


@pytest.mark.parametrize(
    ("tally", "cancel_requested", "want"),
    [
        pytest.param({State.SUCCEEDED: 1, State.FAILED: 3}, False, TaskState.COMPLETED, id="one"),
        pytest.param({State.FAILED: 4}, False, TaskState.FAILED, id="none succeeded"),
        pytest.param({State.CANCELLED: 4}, False, TaskState.FAILED, id="all stopped elsewhere"),
        pytest.param({State.SUCCEEDED: 4}, True, TaskState.CANCELLED, id="too late to complete"),
        pytest.param({State.CANCELLED: 4}, True, TaskState.CANCELLED, id="cancelled"),
    ],
)
def test_task_ends_with_its_last_experiment(
    tally: Tally, cancel_requested: bool, want: TaskState
) -> None:
    task = make_task(cancel_requested=cancel_requested)

    decision = tasks.finish(task, tally, BEST, NOW)

    assert decision is not None
    assert (decision.task.state, decision.task.finished_at) == (want, NOW)
    [event] = decision.events
    assert tag_of(type(event)) == f"orchestrator.task_{want.value}"
    assert event.revision == decision.task.revision == task.revision + 1


def test_completed_task_names_best_and_counts() -> None:
    tally = {State.SUCCEEDED: 2, State.FAILED: 3, State.CANCELLED: 1}

    decision = tasks.finish(make_task(), tally, BEST, NOW)

    assert decision is not None
    [event] = decision.events
    assert isinstance(event, TaskCompleted)
    assert (event.best_experiment_id, event.succeeded, event.failed) == (BEST, 2, 3)
    assert decision.task.best_experiment_id == BEST


@pytest.mark.parametrize(
    "open_state", [State.PENDING, State.WAITING, State.STARTING, State.RUNNING]
)
@pytest.mark.parametrize("cancel_requested", [True, False])
def test_task_with_open_experiment_goes_on(open_state: State, cancel_requested: bool) -> None:
    task = make_task(cancel_requested=cancel_requested)

    assert tasks.finish(task, {State.SUCCEEDED: 3, open_state: 1}, BEST, NOW) is None


def test_a_finished_task_ends_only_once() -> None:
    assert (
        tasks.finish(make_task(state=TaskState.COMPLETED), {State.SUCCEEDED: 1}, BEST, NOW) is None
    )


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED])
def test_finished_task_cannot_pause_or_resume(state: TaskState) -> None:
    for change in (tasks.pause, tasks.resume):
        with pytest.raises(RefusedError) as refused:
            change(make_task(state=state), NOW)
        assert refused.value.code is ErrorCode.CONFLICT


def test_second_pause_or_resume_changes_nothing() -> None:
    paused = tasks.pause(make_task(), NOW)

    assert paused is not None
    assert not paused.task.may_start_experiments
    assert tasks.pause(paused.task, NOW) is None
    resumed = tasks.resume(paused.task, NOW)
    assert resumed is not None
    assert resumed.task.may_start_experiments
    assert tasks.resume(resumed.task, NOW) is None


def test_cancelling_counts_once() -> None:
    cancelling = tasks.request_cancel(make_task(), "enough")

    assert cancelling is not None
    assert (cancelling.cancel_reason, cancelling.may_start_experiments) == ("enough", False)
    assert tasks.request_cancel(cancelling, "again") is None


def test_a_completed_task_is_not_cancelled() -> None:
    with pytest.raises(RefusedError, match="is completed"):
        tasks.request_cancel(make_task(state=TaskState.COMPLETED), "")


@pytest.mark.parametrize(
    ("strategy", "changes", "may"),
    [
        pytest.param("bayesian", {}, True, id="a search"),
        pytest.param("grid_search", {}, False, id="a grid"),
        pytest.param("bayesian", {"stop_reason": StopReason.MAX_GPU_HOURS}, False, id="stopped"),
        pytest.param("bayesian", {"cancel_requested": True}, False, id="cancelled"),
    ],
)
def test_a_search_proposes_until_it_is_stopped(
    strategy: str, changes: dict[str, Any], may: bool
) -> None:
    task = make_task(make_file(optimization={"strategy": strategy}), **changes)

    assert task.may_propose is may
