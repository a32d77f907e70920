"""Runs that go on with the engine of the run before them, under the same reservation."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import AttemptFinished, CancelExperiment
from schemas.task.trust import RunInfo
from services.orchestrator.domain.lifecycle.deadlines import with_deadline
from services.orchestrator.domain.lifecycle.waiting import start_granted
from services.orchestrator.domain.records import (
    Attempt,
    Decision,
    Experiment,
    Task,
    command_id,
)
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.kept_engines import FRESH, decide, find_obstacle
from services.orchestrator.domain.search.kept_engines import start_of as start_of_run
from services.orchestrator.domain.search.trust import Check


class LeftEngine(Struct, frozen=True, kw_only=True):
    """An engine that is up after its attempt: of the configuration whose first run is `repeats`,
    started for the run `start`.
    """

    attempt: Attempt
    repeats: int
    start: int


class Further(Struct, frozen=True, kw_only=True):
    """How a further run of a configuration gets its engine: one left up, or a fresh start."""

    left_engine: LeftEngine | None = None
    fresh_because: str = ""


def find_left_engines(
    attempts: Sequence[Attempt], past: Sequence[RunRecord], now: datetime
) -> list[LeftEngine]:
    """Return the engines that are up, as far as is known."""
    by_id = {run.scored.experiment_id: run for run in past if run.scored is not None}
    return [
        LeftEngine(attempt=attempt, repeats=run.run.repeats or run.ordinal, start=start_of_run(run))
        for attempt in attempts
        if attempt.kept_until is not None
        and attempt.kept_until > now
        and not attempt.reservation_ended
        and (run := by_id.get(attempt.experiment_id)) is not None
    ]


def choose_engine(check: Check, past: Sequence[RunRecord], up: Sequence[LeftEngine]) -> Further:
    """Decide which engine a further run is measured on."""
    keeping = decide(check.role, check.repeats, past)
    if not keeping.is_kept:
        return Further(fresh_because=keeping.reason)
    left_engine = next((engine for engine in up if engine.repeats == check.repeats), None)
    if left_engine is None:
        return Further(fresh_because="no engine of its configuration was up")
    return Further(left_engine=left_engine)


def fresh_text(experiment: Experiment, fresh_reason: str, *, is_asked: bool) -> str:
    """Say why a further run has a fresh start; empty of a server that runs already."""
    if experiment.engine.endpoint is not None:
        return ""
    if not is_asked:
        return f"{FRESH}: `keep_engine` is off"
    return f"{FRESH}: {find_obstacle(experiment.engine, experiment.request) or fresh_reason}"


def go_on_with(
    task: Task, experiment: Experiment, left_engine: LeftEngine, now: datetime, attempt_id: UUID
) -> Decision:
    """Start a run on an engine that is up, with the GPUs that it has."""
    earlier_attempt = left_engine.attempt
    attempt = with_deadline(
        task,
        Attempt(
            attempt_id=attempt_id,
            experiment_id=experiment.experiment_id,
            task_id=experiment.task_id,
            attempt_number=experiment.attempts_made + 1,
            reservation_id=earlier_attempt.reservation_id,
            reservation_revision=earlier_attempt.reservation_revision,
            requested_at=now,
            executor_id=earlier_attempt.executor_id,
            epoch=earlier_attempt.epoch,
            lease_ttl_seconds=earlier_attempt.lease_ttl_seconds,
            devices=earlier_attempt.devices,
            benchmark_tool=earlier_attempt.benchmark_tool,
            kept_from=earlier_attempt.attempt_id,
            kept_start=left_engine.start,
        ),
        now,
    )
    return start_granted(task, experiment, attempt, now)


def pass_on(experiment: Experiment, left_attempt: Attempt, now: datetime) -> Decision:
    """Note that another run goes on with the engine that an attempt left."""
    return Decision(experiment=experiment, attempt=_no_longer_left(left_attempt, now))


def let_go(experiment: Experiment, left_attempt: Attempt, reason: str, now: datetime) -> Decision:
    """End the engine that an attempt left: nothing more is measured on it."""
    stop = CancelExperiment(
        command_id=command_id(left_attempt.attempt_id, CancelExperiment),
        executor_id=left_attempt.executor_id or "",
        experiment_id=left_attempt.experiment_id,
        attempt_id=left_attempt.attempt_id,
        reason=reason,
    )
    return Decision(
        experiment=experiment, attempt=_no_longer_left(left_attempt, now), commands=(stop,)
    )


def with_engine_use(run: RunInfo, attempt: Attempt, event: AttemptFinished) -> RunInfo:
    """Return the run with what its engine was: kept up from another run, or started for it."""
    if event.engine.endpoint is not None:
        return run
    use = event.engine_use
    if use is None:
        return replace(run, engine_use=run.engine_use or FRESH)
    if not use.is_kept:
        return replace(run, kept_from=None, engine_use=f"{FRESH}: {use.fresh_because}")
    text = f"kept up from run {attempt.kept_start}, its state reset: {use.reset}"
    return replace(run, kept_from=attempt.kept_start, engine_use=text)


def _no_longer_left(left_attempt: Attempt, now: datetime) -> Attempt:
    """The GPUs were held until now, or until the executor let them go."""
    until = min(now, left_attempt.kept_until) if left_attempt.kept_until is not None else now
    return replace(left_attempt, kept_until=None, held_until=until)
