"""An executor that takes an attempt over and lets its deadline pass."""

from datetime import timedelta

import pytest

from schemas.base import Command
from schemas.executor.attempts import AttemptOutcome, CancelExperiment, Failure, FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.scheduler.reservations import CancelReservation
from services.orchestrator.domain.lifecycle import deadlines, running
from services.orchestrator.domain.lifecycle.deadlines import (
    PastHolds,
    as_timed_out,
    expect_hold_seconds,
    is_overdue,
    longest_hold_seconds,
    on_overdue,
    with_deadline,
)
from tests.support.worlds.orchestrator_records import (
    NOW,
    make_experiment,
    make_file,
    make_granted,
    make_task,
)

GRACE = timedelta(seconds=100)
LATE = NOW + GRACE
RUNNING = make_experiment(ExperimentState.RUNNING)


@pytest.mark.parametrize(
    ("changes", "after", "want"),
    [
        pytest.param({}, GRACE, True, id="after the grace"),
        pytest.param({}, GRACE - timedelta(seconds=1), False, id="before"),
        pytest.param({"deadline_at": None}, GRACE, False, id="not accepted yet"),
        pytest.param({"closed_at": NOW}, GRACE, False, id="ended"),
    ],
)
def test_when_an_attempt_is_overdue(
    changes: dict[str, object], after: timedelta, want: bool
) -> None:
    attempt = make_granted(**{"deadline_at": NOW, **changes})

    assert is_overdue(attempt, NOW + after, GRACE) is want


def test_overdue_attempt_is_stopped_then_loses_lease() -> None:
    attempt = make_granted(deadline_at=NOW)

    first = on_overdue(RUNNING, attempt, LATE, GRACE)
    assert first is not None
    assert first.attempt is not None
    assert first.attempt.overdue_at == LATE
    assert on_overdue(RUNNING, first.attempt, LATE, GRACE) is None
    second = on_overdue(RUNNING, first.attempt, LATE + GRACE, GRACE)

    assert second is not None
    commands: tuple[Command, ...] = second.commands
    assert [type(command) for command in commands] == [CancelReservation]
    without_lease = make_granted(deadline_at=NOW, overdue_at=LATE, reservation_ended=True)
    assert on_overdue(RUNNING, without_lease, LATE + GRACE, GRACE) is None
    assert [type(c) for c in running.stop(RUNNING, attempt, "").commands] == [CancelExperiment]


@pytest.mark.parametrize(
    ("outcome", "is_overdue", "cancel_requested", "want"),
    [
        (AttemptOutcome.CANCELLED, True, False, AttemptOutcome.FAILED),
        (AttemptOutcome.INTERRUPTED, True, False, AttemptOutcome.FAILED),
        (AttemptOutcome.CANCELLED, True, True, AttemptOutcome.CANCELLED),
        (AttemptOutcome.SUCCEEDED, True, False, AttemptOutcome.SUCCEEDED),
        (AttemptOutcome.INTERRUPTED, False, False, AttemptOutcome.INTERRUPTED),
    ],
)
def test_overdue_stop_counts_as_timeout(
    outcome: AttemptOutcome, is_overdue: bool, cancel_requested: bool, want: AttemptOutcome
) -> None:
    attempt = make_granted(
        outcome=outcome,
        overdue_at=LATE if is_overdue else None,
        failure=Failure(kind=FailureKind.CANCELLED, message="stopped", log_tail=("last",)),
    )

    ended = as_timed_out(make_task(cancel_requested=cancel_requested), attempt)

    assert ended.outcome is want
    if want is AttemptOutcome.FAILED:
        assert ended.failure is not None
        assert (ended.failure.kind, ended.failure.log_tail) == (FailureKind.TIMEOUT, ("last",))


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(600.0, 700.0, id="the task's timeout and the grace to tear down"),
        pytest.param(1e300, None, id="none where the scheduler takes no such duration"),
    ],
)
def test_hold_time_of_an_attempt_is_bounded(seconds: float, want: float | None) -> None:
    assert longest_hold_seconds(seconds, GRACE) == want


@pytest.mark.parametrize(
    ("seconds", "want"), [(1.0, timedelta(seconds=1)), (1e300, deadlines.MAX_TIMEOUT)]
)
def test_deadline_is_set_once(seconds: float, want: timedelta) -> None:
    task = make_task(make_file(optimization={"timeout_per_iteration": seconds}))

    attempt = with_deadline(task, make_granted(), NOW)

    assert attempt.deadline_at == NOW + want
    assert with_deadline(task, attempt, LATE) == attempt


@pytest.mark.parametrize(
    ("past", "want"),
    [
        pytest.param(PastHolds(), 300.0, id="without a past the longest that it may"),
        pytest.param(
            PastHolds(same_seconds=(40.0, 50.0), similar_seconds=(40.0, 50.0)),
            300.0,
            id="too few to tell",
        ),
        pytest.param(
            PastHolds(same_seconds=(40.0, 50.0, 45.0), similar_seconds=(40.0, 50.0, 45.0, 90.0)),
            50.0,
            id="the longest of the same",
        ),
        pytest.param(
            PastHolds(same_seconds=(40.0,), similar_seconds=(40.0, 90.0, 60.0)),
            90.0,
            id="else of those alike",
        ),
        pytest.param(PastHolds(same_seconds=(400.0,) * 3), 300.0, id="never more than it may"),
    ],
)
def test_expected_hold_follows_past_holds(past: PastHolds, want: float) -> None:
    assert expect_hold_seconds(past, 300.0) == want


def test_expected_hold_needs_no_stated_bound() -> None:
    assert expect_hold_seconds(PastHolds(same_seconds=(5.0, 6.0, 7.0)), None) == 7.0
