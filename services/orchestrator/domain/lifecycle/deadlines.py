"""When an attempt has taken longer than its executor should ever have let it."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome, Failure, FailureKind
from schemas.scheduler.reservations import CancelReservation
from services.orchestrator.domain.records import Attempt, Decision, Experiment, Task, command_id
from shared.failures import RULES

MAX_TIMEOUT: Final = timedelta(days=3650)
ENOUGH_HOLDS: Final = 3
MAX_STATED_HOLD: Final = timedelta(days=365)  # the scheduler refuses to store much more


def longest_hold_seconds(timeout_seconds: float, grace: timedelta) -> float | None:
    """Return how long after its grant an attempt may hold its GPUs; None if beyond a year.

    Loading the model and all levels are within the task's timeout. `grace`, after which the stop is
    sent from here, is for the way to the executor and for its teardown. An attempt that takes still
    longer still holds its GPUs: the scheduler only stops counting on its end.
    """
    seconds = timeout_seconds + grace.total_seconds()
    return seconds if seconds <= MAX_STATED_HOLD.total_seconds() else None


class PastHolds(Struct, frozen=True, kw_only=True):
    """For how long past experiments held their GPUs, in seconds: those of the same parameters, and
    those alike in model, engine and number of GPUs.
    """

    same_seconds: tuple[float, ...] = ()
    similar_seconds: tuple[float, ...] = ()


def expect_hold_seconds(past: PastHolds, longest: float | None) -> float | None:
    """The longest of past holds, where there are enough of them; else, and at most, `longest`.

    Too long an expectation only leaves GPUs to fewer short requests; too short a one promises them
    to requests that then wait longer than was forecast.
    """
    seconds = next(
        (
            holds
            for holds in (past.same_seconds, past.similar_seconds)
            if len(holds) >= ENOUGH_HOLDS
        ),
        None,
    )
    if seconds is None:
        return longest
    return max(seconds) if longest is None else min(max(seconds), longest)


def with_deadline(task: Task, attempt: Attempt, now: datetime) -> Attempt:
    """The attempt that an executor has taken over, with the time by which it should have ended."""
    if attempt.deadline_at is not None:
        return attempt
    seconds = min(task.file.optimization.timeout_per_iteration, MAX_TIMEOUT.total_seconds())
    return replace(attempt, deadline_at=now + timedelta(seconds=seconds))


def is_overdue(attempt: Attempt, now: datetime, grace: timedelta) -> bool:
    """Return whether the executor has let pass both its own deadline and `grace` to tear down."""
    return (
        attempt.closed_at is None
        and attempt.deadline_at is not None
        and now >= attempt.deadline_at + grace
    )


def on_overdue(
    experiment: Experiment, attempt: Attempt, now: datetime, grace: timedelta
) -> Decision | None:
    """First its stop is sent to the executor; if that has no effect, its lease is taken away.

    Either way the executor's event, or its node's confirmation that nothing runs, ends the attempt.
    """
    if not is_overdue(attempt, now, grace):
        return None
    if attempt.overdue_at is None:
        return Decision(experiment=experiment, attempt=replace(attempt, overdue_at=now))
    if now < attempt.overdue_at + grace or attempt.reservation_ended:
        return None
    cancel = CancelReservation(
        command_id=command_id(attempt.reservation_id, CancelReservation),
        reservation_id=attempt.reservation_id,
        reason="its attempt was told to stop and did not",
    )
    return Decision(experiment=experiment, attempt=attempt, commands=(cancel,))


def as_timed_out(task: Task, attempt: Attempt) -> Attempt:
    """An ended attempt; one that was stopped for being overdue has timed out."""
    stopped = {AttemptOutcome.CANCELLED, AttemptOutcome.INTERRUPTED}
    if attempt.overdue_at is None or attempt.outcome not in stopped or task.cancel_requested:
        return attempt
    seconds = task.file.optimization.timeout_per_iteration
    failure = Failure(
        kind=FailureKind.TIMEOUT,
        message=f"expected the attempt to end within {seconds:g} s; it was stopped long after",
        log_tail=attempt.failure.log_tail if attempt.failure is not None else (),
        hint=RULES[FailureKind.TIMEOUT].hint,
    )
    return replace(attempt, outcome=AttemptOutcome.FAILED, failure=failure)
