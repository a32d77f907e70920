"""What happens next with a task, decided by a snapshot of it; nothing here reads or writes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import Event
from schemas.orchestrator.experiments import ExperimentState
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle import tasks
from services.orchestrator.domain.lifecycle.budget import SPENT, spent_budget
from services.orchestrator.domain.lifecycle.keeping import Further, choose_engine, find_left_engines
from services.orchestrator.domain.progress.leader import find_best
from services.orchestrator.domain.progress.lost_engines import find_lost_engines
from services.orchestrator.domain.progress.proposals import Answer, Question, ask
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.records import Attempt, Experiment, Task, new_experiment
from services.orchestrator.domain.search.history import with_settings_compared
from services.orchestrator.domain.search.trust import Check, next_checks, verdict
from shared.engines.variants import Variant

Answers = Sequence[tuple[Question, Answer]]


class Repetition(Struct, frozen=True, kw_only=True):
    """Another run of a configuration, whose first run is `first_id`, and its engine."""

    check: Check
    first_id: UUID
    ordinal: int
    further: Further = Further()


class TaskActions(Struct, frozen=True, kw_only=True):
    """What is to be written. Nothing of it depends on what else happens.

    `task` is as it is afterwards, with its `events`. `added` are proposed experiments,
    `repetitions` runs of such that are stored; `requesting` request GPUs now, and repetitions as
    far as there is `room` for them. Pending experiments are cancelled for `cancelled_because`,
    where it is not empty, those of `cancelled_engine` alone where there is one: what happens next
    is decided anew afterwards.

    `let_go` are attempts whose engines, left up, are of no more use.

    Where there is a `question`, its answer may change all of this: it comes in `answers` then.
    """

    task: Task
    events: tuple[Event, ...] = ()
    added: tuple[Experiment, ...] = ()
    repetitions: tuple[Repetition, ...] = ()
    requesting: tuple[Experiment, ...] = ()
    room: int = 0
    cancelled_because: str = ""
    cancelled_engine: Variant | None = None
    let_go: tuple[Attempt, ...] = ()
    question: Question | None = None


def next_actions(
    snapshot: TaskSnapshot,
    installation: Installation,
    now: datetime,
    make_id: Callable[[], UUID],
    answers: Answers = (),
) -> TaskActions:
    """Decide what a task does: request GPUs for what may start, propose, check, or end."""
    actions = _next_actions(snapshot, installation, now, make_id, answers)
    return replace(actions, let_go=_list_unused(snapshot, actions))


def _next_actions(
    snapshot: TaskSnapshot,
    installation: Installation,
    now: datetime,
    make_id: Callable[[], UUID],
    answers: Answers,
) -> TaskActions:
    task = snapshot.task
    if not task.may_start_experiments:
        return _conclude(snapshot, TaskActions(task=task), now)
    budget = _find_spent_budget(snapshot)
    if budget is not None:
        return budget
    loss = _find_lost_engine(snapshot)
    if loss is not None:
        return loss
    actions = TaskActions(
        task=task, requesting=snapshot.pending[: snapshot.room], room=snapshot.room
    )
    if task.may_propose and snapshot.has_room_to_propose:
        question = ask(snapshot, installation)
        answer = next((reply for earlier, reply in answers if earlier == question), None)
        if answer is None:
            actions = replace(actions, question=question)
        else:
            actions = _take(actions, answer, now, make_id)
    task = actions.task
    is_idle = not snapshot.unfinished and not actions.added
    if task.may_check and not task.may_propose and is_idle:
        actions = _check(actions, snapshot, now)
    if actions.room and (actions.requesting or actions.added or actions.repetitions):
        started = tasks.start(actions.task, now)
        if started is not None:
            actions = replace(actions, task=started.task, events=started.events)
    return _conclude(snapshot, actions, now)


def _find_spent_budget(snapshot: TaskSnapshot) -> TaskActions | None:
    """Return what follows once a task has used up its GPU-hours or its money."""
    task = snapshot.task
    if task.stop_reason in SPENT:
        return None
    spent = spent_budget(task.file.optimization, task.prices, snapshot.holds)
    if spent is None:
        return None
    stop_reason, reason = spent
    return TaskActions(task=replace(task, stop_reason=stop_reason), cancelled_because=reason)


def _find_lost_engine(snapshot: TaskSnapshot) -> TaskActions | None:
    """Return what follows once an engine of a task over several could not be started."""
    task = snapshot.task
    for engine, note in find_lost_engines(task, snapshot.history or ()).items():
        if note not in task.notes:
            return TaskActions(
                task=replace(task, notes=(*task.notes, note)),
                cancelled_because=note,
                cancelled_engine=engine,
            )
    return None


def _take(
    actions: TaskActions, answer: Answer, now: datetime, make_id: Callable[[], UUID]
) -> TaskActions:
    """Return the actions with the answer of a search."""
    task, proposal = actions.task, answer.proposal
    if answer.stop_reason is not None:
        return replace(actions, task=replace(task, stop_reason=answer.stop_reason))
    if proposal is None:
        return actions
    experiment = new_experiment(
        task,
        proposal.planned,
        make_id(),
        now,
        proposal.reason,
        proposal.run,
        proposal.predicted_score,
    )
    requesting = (*actions.requesting, experiment)[: actions.room]
    return replace(actions, added=(experiment,), requesting=requesting)


def _list_unused(snapshot: TaskSnapshot, actions: TaskActions) -> tuple[Attempt, ...]:
    """Return the attempts whose engines nothing more is measured on."""
    is_over = not actions.task.may_start_experiments or not snapshot.unfinished
    if not is_over or actions.question is not None:
        return ()
    used = {
        r.further.left_engine.attempt.attempt_id
        for r in actions.repetitions
        if r.further.left_engine
    }
    return tuple(attempt for attempt in snapshot.left_attempts if attempt.attempt_id not in used)


def _check(actions: TaskActions, snapshot: TaskSnapshot, now: datetime) -> TaskActions:
    """Return the runs that show how far the best experiment can be trusted, or their result.

    All of the runs before them have ended, so that one after the other is interleaved.
    """
    task, past = actions.task, with_settings_compared(snapshot.history or ())
    spec = task.file.optimization
    spent_reason = SPENT.get(task.stop_reason, "") if task.stop_reason is not None else ""
    up = find_left_engines(snapshot.left_attempts, past, now)
    checks = []
    if not spent_reason:
        configurations_up = {engine.repeats for engine in up}
        checks = next_checks(spec.objective, past, spec.max_parallel, configurations_up)
    if not checks:
        trust = verdict(spec.objective, past, spent_reason, spec.goals)
        return replace(actions, task=replace(task, trust=trust))
    first_ids = {run.ordinal: run.scored.experiment_id for run in past if run.scored}
    repetitions = []
    for ordinal, check in enumerate(checks, start=past[-1].ordinal + 1):
        further = choose_engine(check, past, up)
        up = [engine for engine in up if engine is not further.left_engine]
        repetition = Repetition(
            check=check, first_id=first_ids[check.repeats], ordinal=ordinal, further=further
        )
        repetitions.append(repetition)
    return replace(actions, repetitions=tuple(repetitions))


def _conclude(snapshot: TaskSnapshot, actions: TaskActions, now: datetime) -> TaskActions:
    """Return the actions with the task's end, if nothing of it is left, and its best experiment."""
    task = actions.task
    tally = dict(snapshot.tally)
    if added := len((*actions.added, *actions.repetitions)):
        tally[ExperimentState.PENDING] = tally.get(ExperimentState.PENDING, 0) + added
    best = task.best_experiment_id
    if not tally.get(ExperimentState.SUCCEEDED):
        best = None
    elif snapshot.history is not None:
        best = find_best(task, snapshot.history)
    ending = tasks.finish(task, tally, best, now)
    if ending is not None:
        return replace(actions, task=ending.task, events=(*actions.events, *ending.events))
    return replace(actions, task=replace(task, best_experiment_id=best))
