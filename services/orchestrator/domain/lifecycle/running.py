"""An experiment on an executor: from the answer to its start to its one outcome."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhaseChanged,
    AttemptStarted,
    CancelExperiment,
    Failure,
    FailureKind,
)
from schemas.orchestrator.experiments import ExperimentRetrying, ExperimentRunning, ExperimentState
from schemas.results.measurements import GpuMonitoring
from schemas.task.benchmark import BenchmarkMetrics, LevelResult
from schemas.task.slo import SloVerdict
from schemas.task.trust import ScoreError
from services.orchestrator.domain.lifecycle.contamination import find_throttling, of_gpus
from services.orchestrator.domain.lifecycle.deadlines import as_timed_out, with_deadline
from services.orchestrator.domain.lifecycle.keeping import with_engine_use
from services.orchestrator.domain.lifecycle.retrying import Step, next_step
from services.orchestrator.domain.lifecycle.run_setting import with_benchmark, with_devices
from services.orchestrator.domain.lifecycle.score_error import (
    add_errors,
    score_error,
    without_client_failure,
)
from services.orchestrator.domain.lifecycle.start_refusals import (
    failure_of_refusal,
    outcome_of_refusal,
)
from services.orchestrator.domain.lifecycle.waiting import give_back, start_of
from services.orchestrator.domain.records import (
    Attempt,
    Decision,
    Ended,
    Experiment,
    Task,
    command_id,
    end,
    fields_of,
)
from services.orchestrator.domain.search.kept_engines import FRESH
from shared.benchmarks.levels.level_choice import select_compared_levels
from shared.benchmarks.verdicts.constraints import check_constraints, max_goodput, parse_constraints
from shared.benchmarks.verdicts.ranking import score
from shared.benchmarks.verdicts.slo import penalize, slo_verdict
from shared.failures import RULES


def on_start_answered(
    task: Task, experiment: Experiment, attempt: Attempt, reply: Reply, now: datetime
) -> Decision | None:
    """Accepted hands the lease over; a refusal means that nothing was started and nothing will."""
    if attempt.closed_at is not None:
        return None
    if isinstance(reply, Accepted):
        accepted = with_deadline(task, replace(attempt, is_accepted=True), now)
        return Decision(experiment=experiment, attempt=accepted)
    if attempt.is_accepted and reply.code is ErrorCode.COMMAND_ID_REUSED:
        return None  # repeated by another release than the first: the executor knows the attempt
    refused = as_timed_out(
        task,
        replace(
            attempt,
            outcome=outcome_of_refusal(task, reply),
            failure=failure_of_refusal(reply),
            closed_at=now,
        ),
    )
    release: tuple[Command, ...] = ()
    if attempt.kept_from is not None:
        # The executor gives its GPUs back itself; that the engine is gone costs no attempt.
        refused = replace(refused, executor_stopped=True)
        run = replace(experiment.run, engine_use=f"{FRESH}: {reply.message}")
        experiment = replace(experiment, run=run)
    elif attempt.epoch is not None:
        release = (give_back(attempt.reservation_id, attempt.epoch, reply.message),)
    decision = _after_outcome(task, experiment, refused, now)
    return replace(decision, commands=(*decision.commands, *release))


def on_attempt_seen(
    task: Task,
    experiment: Experiment,
    attempt: Attempt,
    phase: str | None,
    started_at: datetime | None,
    now: datetime,
) -> Decision:
    """The executor has the attempt under way."""
    observed = replace(
        with_deadline(task, attempt, now),
        is_accepted=True,
        phase=phase or attempt.phase,
        started_at=attempt.started_at or started_at,
    )
    if experiment.state is not ExperimentState.STARTING:
        return Decision(experiment=experiment, attempt=observed)
    return _running(experiment, observed, now)


def on_attempt_missing(task: Task, experiment: Experiment, attempt: Attempt) -> Decision | None:
    """The executor answered that nothing of an accepted attempt is under way.

    It has ended, and the repeated start has its end published again; an executor that lost its
    journal takes the start for a new one and finds the lease gone.
    """
    start = start_of(task, experiment, attempt)
    if attempt.closed_at is not None or not attempt.is_accepted or not start:
        return None
    # In this order, lest a journal that is new starts what was to stop.
    stops = stop(experiment, attempt, task.cancel_reason).commands if task.cancel_requested else ()
    return Decision(experiment=experiment, attempt=attempt, commands=(*stops, *start))


def on_stop_confirmed(
    task: Task, experiment: Experiment, attempt: Attempt, reason: str, now: datetime
) -> Decision | None:
    """End an attempt of which nothing runs, as its node or an administrator confirmed.

    The executor that knows how it ended does not answer: its node is lost, and it was interrupted.
    """
    if attempt.closed_at is not None or not attempt.reservation_ended:
        return None
    kind = FailureKind.NODE_LOST
    interrupted = replace(
        attempt,
        outcome=AttemptOutcome.INTERRUPTED,
        failure=Failure(kind=kind, message=reason, hint=RULES[kind].hint),
        finished_at=now,
        closed_at=now,
    )
    return _after_outcome(task, experiment, as_timed_out(task, interrupted), now)


def on_attempt_event(
    task: Task,
    experiment: Experiment,
    attempt: Attempt,
    event: AttemptStarted | AttemptPhaseChanged | AttemptFinished,
    now: datetime,
) -> Decision | None:
    """An event of the executor; one that is older than what is known changes nothing, nor does
    another node's.
    """
    is_foreign = event.executor_id != attempt.executor_id
    if is_foreign or attempt.closed_at is not None or event.revision <= attempt.attempt_revision:
        return None
    newer = replace(attempt, attempt_revision=event.revision)
    match event:
        case AttemptStarted():
            return on_attempt_seen(task, experiment, newer, None, event.occurred_at, now)
        case AttemptPhaseChanged():
            return on_attempt_seen(task, experiment, newer, event.phase.value, None, now)
        case AttemptFinished():
            return _on_finished(task, experiment, newer, event, now)


def on_summary(
    task: Task,
    experiment: Experiment,
    attempt: Attempt,
    metrics: BenchmarkMetrics,
    now: datetime,
    peak_memory_mb: int | None = None,
    monitoring: GpuMonitoring | None = None,
    driver_versions: Mapping[str, str] | None = None,
) -> Decision | None:
    """The measurements of an attempt are stored. Their event may come before the attempt's end."""
    if experiment.is_finished or experiment.summary_attempt_id == attempt.attempt_id:
        return None
    measured = replace(experiment, summary_attempt_id=attempt.attempt_id, metrics=metrics)
    if monitoring is not None:
        is_shared = experiment.request.shares is not None
        measured = replace(
            measured,
            metrics=replace(
                metrics,
                tokens_per_joule=monitoring.tokens_per_joule,
                cost_per_million_tokens=monitoring.cost_per_million_tokens,
            ),
        )
        devices = experiment.engine.devices_read(attempt.devices)
        setting = with_devices(measured.run.setting, devices, monitoring, driver_versions or {})
        measured = replace(measured, run=replace(measured.run, setting=setting))
        measured = _with_disturbances(measured, monitoring, is_shared=is_shared)
    attempt = replace(attempt, peak_memory_mb=peak_memory_mb)
    if attempt.outcome is not AttemptOutcome.SUCCEEDED:
        return Decision(experiment=measured, attempt=attempt)
    return _end_succeeded(task, measured, attempt, now)


def stop(experiment: Experiment, attempt: Attempt, reason: str) -> Decision:
    """Have the executor stop an attempt; its outcome follows as an event."""
    commands: tuple[Command, ...] = ()
    if attempt.executor_id is not None and attempt.closed_at is None:
        commands = (
            CancelExperiment(
                command_id=command_id(attempt.attempt_id, CancelExperiment),
                executor_id=attempt.executor_id,
                experiment_id=experiment.experiment_id,
                attempt_id=attempt.attempt_id,
                reason=reason,
            ),
        )
    return Decision(experiment=experiment, commands=commands)


def _on_finished(
    task: Task, experiment: Experiment, attempt: Attempt, event: AttemptFinished, now: datetime
) -> Decision:
    finished = as_timed_out(
        task,
        replace(
            attempt,
            outcome=event.outcome,
            failure=event.failure,
            executor_stopped=event.executor_stopped,
            image_digest=event.image_digest,
            kept_until=event.kept_until,
            is_accepted=True,
            started_at=event.started_at,
            finished_at=event.finished_at,
            closed_at=now,
        ),
    )
    run = replace(experiment.run, image_digest=event.image_digest or "")
    run = with_engine_use(run, attempt, event)
    experiment = replace(experiment, run=run)
    if event.benchmark is not None:
        levels = select_compared_levels(event.benchmark)
        # The summary may have come before and told of throttled GPUs.
        run = replace(
            run,
            error=add_errors(run.error, score_error(task.file, event.benchmark)),
            setting=with_benchmark(run.setting, event.benchmark),
        )
        experiment = replace(
            experiment, run=run, slo=_judge(task, levels), answers=event.benchmark.quality
        )
    if experiment.state is not ExperimentState.STARTING:
        return _after_outcome(task, experiment, finished, now)
    running = _running(experiment, finished, now)
    decision = _after_outcome(task, running.experiment, finished, now)
    return replace(decision, events=(*running.events, *decision.events))


def _with_disturbances(
    experiment: Experiment, monitoring: GpuMonitoring, *, is_shared: bool
) -> Experiment:
    """Return the experiment with what happened on its GPUs while it was measured."""
    run = experiment.run
    throttled = find_throttling(monitoring, is_clock_locked=experiment.sm_clock_mhz is not None)
    if throttled:
        error = ScoreError(better_share=None, because=throttled, may_meet=True)
        run = replace(run, error=add_errors(run.error, error))
    contaminated = (*run.contaminated, *of_gpus(monitoring, is_shared=is_shared))
    return replace(experiment, run=replace(run, contaminated=contaminated))


def _after_outcome(task: Task, experiment: Experiment, attempt: Attempt, now: datetime) -> Decision:
    failure = attempt.failure
    message = failure.message if failure is not None else ""
    match attempt.outcome:
        case AttemptOutcome.SUCCEEDED:
            if experiment.summary_attempt_id == attempt.attempt_id:
                return _end_succeeded(task, experiment, attempt, now)
            return Decision(experiment=experiment, attempt=attempt)
        case AttemptOutcome.CANCELLED:
            reason = task.cancel_reason or message or "cancelled"
            ended = Ended(state=ExperimentState.CANCELLED, reason=reason, failure=failure)
            return end(experiment, ended, now, attempt)
        case _:
            return _after_failure(task, experiment, attempt, now)


def _after_failure(task: Task, experiment: Experiment, attempt: Attempt, now: datetime) -> Decision:
    following = next_step(task, experiment, attempt)
    counted, reason = following.experiment, following.reason
    if following.step is Step.REPEAT:
        return _repeat(counted, attempt, reason, now)
    cancelled = following.step is Step.CANCEL
    state = ExperimentState.CANCELLED if cancelled else ExperimentState.FAILED
    return end(counted, Ended(state=state, reason=reason, failure=attempt.failure), now, attempt)


def _repeat(experiment: Experiment, attempt: Attempt, reason: str, now: datetime) -> Decision:
    retrying = replace(experiment, state=ExperimentState.PENDING, revision=experiment.revision + 1)
    event = ExperimentRetrying(
        **fields_of(retrying, now),
        attempt_number=attempt.attempt_number,
        reason=reason,
        failure_kind=attempt.failure.kind if attempt.failure is not None else None,
        avoided_node_ids=retrying.avoided_node_ids,
    )
    return Decision(experiment=retrying, attempt=attempt, events=(event,))


def _judge(task: Task, levels: Sequence[LevelResult]) -> SloVerdict | None:
    """Compare the measured levels to the task's objectives; None if it has none."""
    slo, text = task.file.slo, task.file.optimization.constraints
    if slo is None and not text:
        return None
    verdict = SloVerdict()
    if slo is not None:
        verdict = without_client_failure(slo, levels, slo_verdict(slo, levels))
    constraints = parse_constraints(text)
    return replace(
        verdict,
        constraints=check_constraints(constraints, levels),
        max_goodput=max_goodput(constraints, levels) if constraints else None,
    )


def _with_goodput(metrics: BenchmarkMetrics, slo: SloVerdict | None) -> BenchmarkMetrics:
    total, per_gpu = metrics.max_total_throughput, metrics.max_total_throughput_per_gpu
    if slo is None or slo.max_goodput is None:
        return metrics
    gpus = total / per_gpu if total and per_gpu else 1.0
    return replace(metrics, max_goodput_per_gpu=slo.max_goodput / gpus)


def _end_succeeded(task: Task, experiment: Experiment, attempt: Attempt, now: datetime) -> Decision:
    objective = task.file.optimization.objective
    metrics = _with_goodput(experiment.metrics or BenchmarkMetrics(), experiment.slo)
    experiment = replace(experiment, metrics=metrics)
    value = score(objective, metrics)
    if experiment.slo is not None and experiment.slo.failed_because:
        missed = Ended(state=ExperimentState.FAILED, reason=experiment.slo.failed_because)
        return end(experiment, missed, now, attempt)
    if experiment.slo is not None and value is not None:
        value = penalize(objective, value, experiment.slo.penalty)
    ended = Ended(state=ExperimentState.SUCCEEDED, objective_score=value)
    return end(experiment, ended, now, attempt)


def _running(experiment: Experiment, attempt: Attempt, now: datetime) -> Decision:
    running = replace(
        experiment,
        state=ExperimentState.RUNNING,
        revision=experiment.revision + 1,
        started_at=experiment.started_at or attempt.started_at or now,
    )
    event = ExperimentRunning(
        **fields_of(running, now),
        executor_id=attempt.executor_id or "",
        attempt_id=attempt.attempt_id,
    )
    return Decision(experiment=running, attempt=attempt, events=(event,))
