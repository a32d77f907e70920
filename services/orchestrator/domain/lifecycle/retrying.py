"""Whether an experiment is tried again after an attempt that measured nothing, and where."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import AttemptOutcome, FailureKind
from services.orchestrator.domain.records import Attempt, Experiment, Task
from shared.failures import RULES, FailureRule

Rules = Mapping[FailureKind, FailureRule]

# Another of its nodes would do no better.
_OF_THE_WHOLE_CLUSTER: Final = frozenset(
    {FailureKind.MODEL_MISSING, FailureKind.RUNTIME_UNAVAILABLE}
)


class Step(Enum):
    """What becomes of the experiment."""

    REPEAT = auto()
    FAIL = auto()
    CANCEL = auto()


class NextStep(Struct, frozen=True, kw_only=True):
    """The experiment with the attempt counted, what becomes of it and why."""

    experiment: Experiment
    step: Step
    reason: str


def next_step(
    task: Task, experiment: Experiment, attempt: Attempt, rules: Rules = RULES
) -> NextStep:
    """Decide what follows from an attempt that failed or was interrupted.

    An interruption is not the experiment's fault, so that it is repeated; a failure is as often as
    the rule of its kind allows. `max_attempts` of the task bounds both together, but for what an
    executor that was stopped in order cut off, and a task that is being cancelled repeats nothing.
    """
    counted = _count_attempt(experiment, attempt)
    message = attempt.failure.message if attempt.failure is not None else ""
    if not _may_pass(counted, attempt, rules):
        return NextStep(experiment=counted, step=Step.FAIL, reason=_give_up_text(counted, message))
    if task.cancel_requested:
        reason = task.cancel_reason or "cancelled"
        return NextStep(experiment=counted, step=Step.CANCEL, reason=reason)
    if counted.attempts_spent >= task.file.optimization.max_attempts:
        return NextStep(experiment=counted, step=Step.FAIL, reason=_give_up_text(counted, message))
    return NextStep(
        experiment=_elsewhere(counted, attempt, rules),
        step=Step.REPEAT,
        reason=message or "interrupted",
    )


def nodes_to_request(experiment: Experiment, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that the next attempt may run on: all, if too few are left to choose from.
    all, if too few are left to choose from.

    Without any present ones, those that were requested before.
    """
    nodes_known = nodes or tuple(
        dict.fromkeys((*experiment.request.node_ids, *experiment.avoided_node_ids))
    )
    other_nodes = tuple(node for node in nodes_known if node not in experiment.avoided_node_ids)
    return other_nodes if len(other_nodes) >= experiment.request.nodes else nodes_known


def anywhere_again(experiment: Experiment) -> Experiment | None:
    """The experiment avoiding no node any more; None if its last request avoided none."""
    requested = experiment.request.node_ids
    left_out = tuple(node for node in experiment.avoided_node_ids if node not in requested)
    if not left_out or not requested:
        return None
    request = replace(experiment.request, node_ids=(*requested, *left_out))
    return replace(experiment, request=request, avoided_node_ids=())


def _count_attempt(experiment: Experiment, attempt: Attempt) -> Experiment:
    if attempt.outcome is AttemptOutcome.INTERRUPTED:
        return replace(
            experiment,
            interrupted_attempts=experiment.interrupted_attempts + 1,
            stopped_attempts=experiment.stopped_attempts + _is_free(attempt),
        )
    kind = attempt.failure.kind if attempt.failure is not None else FailureKind.INTERNAL
    failed = experiment.failed_attempts
    return replace(experiment, failed_attempts={**failed, kind: failed.get(kind, 0) + 1})


def free_interruption(experiment: Experiment, attempt: Attempt) -> Experiment:
    """The experiment whose interrupted attempt turns out to have been preempted."""
    if attempt.outcome is not AttemptOutcome.INTERRUPTED or _is_free(attempt):
        return experiment
    return replace(experiment, stopped_attempts=experiment.stopped_attempts + 1)


def _is_free(attempt: Attempt) -> bool:
    """Return whether its interruption costs none of `max_attempts`."""
    return attempt.executor_stopped or attempt.is_preempted


def _may_pass(counted: Experiment, attempt: Attempt, rules: Rules) -> bool:
    if attempt.outcome is AttemptOutcome.INTERRUPTED:
        return True
    if attempt.failure is None:
        return False  # no kind, so that no rule applies
    if attempt.failure.is_final:
        return False
    kind = attempt.failure.kind
    return counted.failed_attempts[kind] <= rules[kind].retries


def _elsewhere(experiment: Experiment, attempt: Attempt, rules: Rules) -> Experiment:
    """The experiment that avoids where it failed: a cluster's node, if that was our choice."""
    failure, place, request = attempt.failure, attempt.cluster, experiment.request
    if failure is None or not rules[failure.kind].elsewhere:
        return experiment
    is_of_node = failure.kind not in _OF_THE_WHOLE_CLUSTER
    if (
        place is not None
        and place.node_name
        and is_of_node
        and (cluster_request := request.cluster)
    ):
        names = tuple(dict.fromkeys((*cluster_request.avoided_node_names, place.node_name)))
        elsewhere = replace(cluster_request, avoided_node_names=names)
        return replace(experiment, request=replace(request, cluster=elsewhere))
    nodes = attempt.node_ids or ((attempt.executor_id,) if attempt.executor_id else ())
    avoided = tuple(dict.fromkeys((*experiment.avoided_node_ids, *nodes)))
    return replace(experiment, avoided_node_ids=avoided)


def _give_up_text(experiment: Experiment, message: str) -> str:
    interrupted, failed = experiment.interrupted_attempts, experiment.failures_counted
    if failed == 1 and not interrupted:
        return message or "the attempt failed"
    counts = [
        f"{verb} {count} {'time' if count == 1 else 'times'}"
        for verb, count in (("interrupted", interrupted), ("failed", failed))
        if count
    ]
    return f"{' and '.join(counts)}, the last time: {message}"
