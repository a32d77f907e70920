"""What follows when nothing of an attempt runs and its executor cannot say how it ended."""

from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome, FailureKind
from schemas.orchestrator.experiments import ExperimentState as State
from services.orchestrator.domain.lifecycle import running
from shared.failures import RULES
from tests.support.worlds.orchestrator_records import NOW, make_experiment, make_granted, make_task


def test_confirmed_stop_repeats_the_experiment() -> None:
    attempt = replace(make_granted(), reservation_ended=True, is_accepted=True)

    decision = running.on_stop_confirmed(
        make_task(), make_experiment(State.RUNNING), attempt, "node lost", NOW
    )

    assert decision is not None
    assert decision.attempt is not None
    assert decision.attempt.outcome is AttemptOutcome.INTERRUPTED
    assert decision.attempt.failure is not None
    assert decision.attempt.failure.kind is FailureKind.NODE_LOST
    assert decision.attempt.failure.hint == RULES[FailureKind.NODE_LOST].hint
    assert decision.attempt.closed_at == NOW
    assert decision.experiment.state is State.PENDING
    assert decision.experiment.interrupted_attempts == 1
    assert decision.experiment.avoided_node_ids == ("n1",)


def test_confirmed_stop_ends_a_cancelled_task() -> None:
    attempt = replace(make_granted(), reservation_ended=True)
    task = make_task(cancel_requested=True)

    decision = running.on_stop_confirmed(task, make_experiment(State.STARTING), attempt, "", NOW)

    assert decision is not None
    assert decision.experiment.state is State.CANCELLED


def test_confirmed_stop_leaves_ended_attempts() -> None:
    task, experiment = make_task(), make_experiment(State.RUNNING)
    lives = make_granted()
    closed = replace(lives, reservation_ended=True, closed_at=NOW)

    assert running.on_stop_confirmed(task, experiment, lives, "", NOW) is None
    assert running.on_stop_confirmed(task, experiment, closed, "", NOW) is None
