"""Rows as others see them."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import HOUR_SECONDS
from schemas.errors import ErrorCode
from schemas.executor.attempts import Failure
from schemas.gpus.gpu_info import GpuInfo
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.orchestrator.views import (
    AttemptView,
    ExperimentView,
    TaskPlan,
    TaskSpending,
    TaskView,
)
from schemas.results.prices import GpuPrices
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.lifecycle.budget import (
    AttemptTimes,
    HeldGpus,
    find_cost,
    seconds_left,
)
from services.orchestrator.domain.plan.gpu_hours import gpu_hours_at_most
from services.orchestrator.domain.plan.memory_rule import memory_terms
from services.orchestrator.domain.plan.plan import Plan
from services.orchestrator.domain.plan.sizing import world_size_given
from services.orchestrator.domain.records import Attempt, Experiment, Task
from shared.errors import RefusedError
from shared.gpu.info import gpu_info_of
from shared.messaging.codec import encode

V = TypeVar("V", bound=Struct)

MAX_ANSWER_BYTES: Final = 1_000_000  # below the bus's 1 MiB
MAX_SHOWN_EXPERIMENTS: Final = 500


def task_view(
    task: Task, tally: Mapping[ExperimentState, int], *, with_file: bool, archived: bool
) -> TaskView:
    return TaskView(
        task_id=task.task_id,
        namespace=task.namespace,
        task_name=task.task_name,
        description=task.file.description,
        state=task.state,
        mode=task.mode,
        objective=task.file.optimization.objective,
        revision=task.revision,
        created_at=task.created_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        cancel_requested=task.cancel_requested,
        experiments_total=sum(tally.values()),
        experiments_by_state={state.value: count for state, count in tally.items()},
        best_experiment_id=task.best_experiment_id,
        reason=task.reason,
        notes=task.notes,
        benchmark_tool=task.benchmark_tool,
        task=task.file if with_file else None,
        archived=archived,
        experiments_at_most=task.experiments_at_most,
        stop_reason=task.stop_reason if task.is_finished else None,
        cut=task.cut,
        trust=task.trust,
        gpu_model=task.gpu_model,
        requester=task.requester,
    )


def spending_of(
    task: Task,
    tally: Mapping[ExperimentState, int],
    holds: Sequence[HeldGpus],
    times: AttemptTimes,
    prices: GpuPrices | None,
) -> TaskSpending:
    """Return what a task has held GPUs for, and how long it may still take."""
    remaining = None
    if not task.is_finished and not task.cancel_requested and task.experiments_at_most:
        finished = sum(tally.get(state, 0) for state in FINISHED_EXPERIMENT_STATES)
        total = max(task.experiments_at_most, sum(tally.values()))
        unstarted = max(0, total - finished - len(times.running_seconds))
        remaining = seconds_left(times, unstarted, task.file.optimization.max_parallel)
    return TaskSpending(
        gpu_hours=math.fsum(held_gpus.gpu_seconds for held_gpus in holds) / HOUR_SECONDS,
        cost=None if prices is None else find_cost(holds, prices.hourly),
        currency="" if prices is None else prices.currency,
        seconds_left=remaining,
    )


def experiment_view(
    experiment: Experiment,
    attempts: Sequence[Attempt],
    *,
    with_logs: bool,
    messages: Mapping[UUID, str],
) -> ExperimentView:
    """`attempts` are all reservations of the experiment, oldest first; only granted ones show.

    `messages` are what executors reported of attempts that are not ready yet.
    """
    granted = [attempt for attempt in attempts if attempt.executor_id is not None]
    newest = attempts[-1] if attempts else None
    is_scored = experiment.state is ExperimentState.SUCCEEDED
    waiting = newest if experiment.state is ExperimentState.WAITING else None
    return ExperimentView(
        experiment_id=experiment.experiment_id,
        task_id=experiment.task_id,
        namespace=experiment.namespace,
        ordinal=experiment.ordinal,
        state=experiment.state,
        revision=experiment.revision,
        parameters=experiment.parameters,
        engine=experiment.engine,
        request=experiment.request,
        created_at=experiment.created_at,
        started_at=experiment.started_at,
        finished_at=experiment.finished_at,
        reservation_id=newest.reservation_id if newest and newest.has_reservation else None,
        executor_id=granted[-1].executor_id if granted else None,
        objective_score=experiment.objective_score,
        metrics=experiment.metrics if is_scored else None,
        gpu_info=_gpu_info(experiment, granted[-1]) if granted else None,
        attempts=tuple(
            _attempt_view(attempt, messages.get(attempt.attempt_id, ""), with_logs=with_logs)
            for attempt in granted
        ),
        interrupted_attempts=experiment.interrupted_attempts,
        failed_attempts=experiment.failures_counted,
        failure=_failure(experiment.failure, with_logs=with_logs),
        task_name=experiment.task_name,
        memory_source=experiment.memory_source,
        reason=experiment.reason,
        proposal=experiment.proposal,
        slo=experiment.slo if is_scored else None,
        run=experiment.run,
        preflight=experiment.preflight,
        predicted_score=experiment.predicted_score,
        memory_estimate=experiment.memory_estimate,
        prepared=_describe_preparation(waiting, messages) if waiting is not None else "",
    )


def _describe_preparation(waiting: Attempt, messages: Mapping[UUID, str]) -> str:
    if not waiting.has_reservation:
        return "waits for its turn at the server, or for an executor that can measure it"
    return messages.get(waiting.attempt_id, "")


def plan_view(task: TaskFile, plan: Plan) -> TaskPlan:
    """The plan with at most 500 of its experiments, as its notes state."""
    shown_experiments = plan.experiments[:MAX_SHOWN_EXPERIMENTS]
    hidden = len(plan.experiments) - len(shown_experiments)
    notes = [f"{hidden} further experiments are not shown"] if hidden else []
    terms = memory_terms(plan.experiments or plan.samples) if task.endpoint is None else ()
    return bound_answer(
        TaskPlan(
            mode=plan.mode,
            strategy=task.optimization.strategy,
            objective=task.optimization.objective,
            total=plan.total,
            cut=plan.cut,
            experiments=shown_experiments,
            missing=tuple(missing.sentence for missing in plan.missing),
            notes=(*terms, *plan.notes, *notes),
            benchmark_tool=plan.benchmark_tool,
            experiments_at_most=plan.experiments_at_most,
            samples=plan.samples[:MAX_SHOWN_EXPERIMENTS],
            gpu_hours_at_most=gpu_hours_at_most(task, plan),
        )
    )


def bound_answer(answer: V) -> V:
    """`answer`, if the bus carries it. Raises RefusedError otherwise."""
    size = len(encode(answer))
    if size > MAX_ANSWER_BYTES:
        raise RefusedError(
            ErrorCode.TOO_LARGE,
            f"expected an answer of at most {MAX_ANSWER_BYTES} bytes, this one has {size}; "
            "ask with a smaller limit",
            path="$.limit",
        )
    return answer


def _attempt_view(attempt: Attempt, message: str, *, with_logs: bool) -> AttemptView:
    return AttemptView(
        attempt_id=attempt.attempt_id,
        attempt_number=attempt.attempt_number,
        reservation_id=attempt.reservation_id,
        executor_id=attempt.executor_id,
        outcome=attempt.outcome,
        phase=attempt.phase,
        failure=_failure(attempt.failure, with_logs=with_logs),
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        cluster=attempt.cluster,
        message=message if attempt.closed_at is None else "",
        image_digest=attempt.image_digest,
    )


def _failure(failure: Failure | None, *, with_logs: bool) -> Failure | None:
    if failure is None or with_logs:
        return failure
    return replace(failure, log_tail=())


def _gpu_info(experiment: Experiment, attempt: Attempt) -> GpuInfo:
    cluster, devices = attempt.cluster, experiment.engine.devices_read(attempt.devices)
    return gpu_info_of(
        devices,
        count=cluster.total_gpus if cluster is not None else len(devices),
        world_size=world_size_given(experiment.engine.parameters | experiment.parameters),
    )
