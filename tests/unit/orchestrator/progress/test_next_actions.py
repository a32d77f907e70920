"""What happens next with a task, by a snapshot of it alone."""

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.orchestrator.experiments import (
    ExperimentState,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskState,
)
from schemas.task.task_file import StopReason
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.lifecycle.budget import HeldGpus
from services.orchestrator.domain.progress.next_actions import TaskActions, next_actions
from services.orchestrator.domain.progress.proposals import Answer, answer, ask
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.warm_start import WarmStart, WarmTrial
from shared.benchmarks.verdicts.ranking import Scored
from tests.support.worlds.orchestrator_records import (
    NOW,
    OFFERS,
    make_experiment,
    make_file,
    make_task,
)

INSTALLATION = Installation(OFFERS)
PENDING, WAITING = ExperimentState.PENDING, ExperimentState.WAITING
SUCCEEDED, FAILED = ExperimentState.SUCCEEDED, ExperimentState.FAILED
SEARCH = {"strategy": "random", "max_iterations": 2, "max_parallel": 2}
SLOTS = {"slots": [1, 2, 3, 4]}


def make_snapshot(
    tally: dict[ExperimentState, int],
    optimization: dict[str, Any] | None = None,
    **fields: Any,
) -> TaskSnapshot:
    file = make_file(parameters=SLOTS, optimization=optimization or {})
    stop_reason = None if optimization else StopReason.SPACE_EXHAUSTED
    task = make_task(file, state=TaskState.RUNNING, stop_reason=stop_reason)
    return TaskSnapshot(
        **{"task": task, "file": file, "tally": tally, "open_attempts": 0, **fields}
    )


def make_run(ordinal: int, score: float | None = None) -> RunRecord:
    scored = None
    if score is not None:
        scored = Scored(experiment_id=UUID(int=100 + ordinal), ordinal=ordinal, score=score)
    state = FAILED if score is None else SUCCEEDED
    return RunRecord(ordinal=ordinal, state=state, parameters={"slots": ordinal}, scored=scored)


def decide(snapshot: TaskSnapshot, *replies: Answer) -> TaskActions:
    question = ask(snapshot, INSTALLATION)
    answers = [(question, reply) for reply in replies if question is not None]
    return next_actions(snapshot, INSTALLATION, NOW, lambda: UUID(int=7), answers)


def propose(snapshot: TaskSnapshot) -> Answer:
    question = ask(snapshot, INSTALLATION)
    assert question is not None
    return answer(question, snapshot.task, INSTALLATION)


def test_pending_experiments_request_within_room() -> None:
    pending = tuple(make_experiment(PENDING, experiment_id=UUID(int=n)) for n in (1, 2))
    snapshot = make_snapshot(
        {PENDING: 2, WAITING: 1}, {"max_parallel": 2}, pending=pending, open_attempts=1
    )

    actions = decide(snapshot)

    assert actions.requesting == pending[:1]


def test_a_task_starts_with_its_first_request() -> None:
    snapshot = make_snapshot({PENDING: 1}, pending=(make_experiment(PENDING),))
    accepted = replace(snapshot, task=replace(snapshot.task, state=TaskState.ACCEPTED))

    actions = decide(accepted)

    assert actions.task.state is TaskState.RUNNING
    assert [type(event) for event in actions.events] == [TaskStarted]


def test_a_search_asks_before_anything_is_written() -> None:
    actions = decide(make_snapshot({}, SEARCH, history=()))

    assert actions.question is not None
    assert actions.added == ()


def test_answer_adds_and_requests_an_experiment() -> None:
    snapshot = make_snapshot({}, SEARCH, history=())

    actions = decide(snapshot, propose(snapshot))

    assert actions.question is None
    assert actions.added == actions.requesting
    assert actions.added[0].proposal == "drawn at random, 1 of 2"


def test_answer_to_another_history_is_ignored() -> None:
    earlier = make_snapshot({}, SEARCH, history=())
    later = make_snapshot({SUCCEEDED: 1}, SEARCH, history=(make_run(1, 2.0),))
    question = ask(earlier, INSTALLATION)
    assert question is not None

    actions = next_actions(
        later, INSTALLATION, NOW, lambda: UUID(int=7), [(question, propose(earlier))]
    )

    assert actions.question == ask(later, INSTALLATION)
    assert actions.question != question


def test_search_waits_for_its_waiting_experiment() -> None:
    actions = decide(make_snapshot({WAITING: 1}, SEARCH, open_attempts=1, history=()))

    assert actions.question is None
    assert actions.added == ()


def test_last_answer_ends_a_search_with_its_best() -> None:
    history = (make_run(1, 2.0), make_run(2, 1.0))
    snapshot = make_snapshot({SUCCEEDED: 2}, SEARCH, history=history)

    actions = decide(snapshot, propose(snapshot))

    assert actions.task.state is TaskState.COMPLETED
    assert actions.task.stop_reason is StopReason.MAX_ITERATIONS
    assert actions.task.best_experiment_id == UUID(int=102)
    assert [type(event) for event in actions.events] == [TaskCompleted]


def test_a_task_none_of_which_succeeded_fails() -> None:
    actions = decide(make_snapshot({FAILED: 1}, history=(make_run(1),)))

    assert actions.task.state is TaskState.FAILED
    assert [type(event) for event in actions.events] == [TaskFailed]


def test_spent_budget_cancels_pending_experiments() -> None:
    held = (HeldGpus(models=("H100",), gpu_seconds=7200.0),)
    snapshot = make_snapshot(
        {PENDING: 1}, {"max_gpu_hours": 1.0}, pending=(make_experiment(PENDING),), holds=held
    )

    actions = decide(snapshot)

    assert actions.cancelled_because == "the task has used up its 1 GPU-hours"
    assert actions.task.stop_reason is StopReason.MAX_GPU_HOURS
    assert actions.requesting == ()


def test_trusted_task_repeats_its_baseline() -> None:
    history = tuple(make_run(ordinal, float(ordinal)) for ordinal in (1, 2, 3))
    snapshot = make_snapshot({SUCCEEDED: 3}, {"trust": True}, history=history)
    task = replace(snapshot.task, stop_reason=StopReason.SPACE_EXHAUSTED)

    actions = decide(replace(snapshot, task=task))

    assert [run.first_id for run in actions.repetitions] == [UUID(int=101)]
    assert [run.ordinal for run in actions.repetitions] == [4]
    assert actions.task.state is TaskState.RUNNING


def test_a_paused_task_does_nothing() -> None:
    snapshot = make_snapshot({PENDING: 1}, SEARCH)
    paused = replace(snapshot, task=replace(snapshot.task, state=TaskState.PAUSED))

    actions = decide(paused)

    assert (actions.requesting, actions.added, actions.question) == ((), (), None)
    assert actions.task == paused.task


def test_task_without_room_requests_nothing_and_waits() -> None:
    snapshot = make_snapshot(
        {PENDING: 1}, SEARCH, pending=(make_experiment(PENDING),), open_attempts=2, history=()
    )
    accepted = replace(snapshot, task=replace(snapshot.task, state=TaskState.ACCEPTED))

    actions = decide(accepted)

    assert (actions.requesting, actions.events) == ((), ())
    assert actions.task.state is TaskState.ACCEPTED


def test_search_proposes_beside_a_running_experiment() -> None:
    running = {ExperimentState.RUNNING: 1}

    with_room = decide(make_snapshot(running, SEARCH, open_attempts=1, history=()))
    full = decide(make_snapshot({ExperimentState.RUNNING: 2}, SEARCH, open_attempts=2, history=()))

    assert with_room.question is not None
    assert full.question is None


def test_spent_task_is_not_stopped_again() -> None:
    held = (HeldGpus(models=("H100",), gpu_seconds=7200.0),)
    snapshot = make_snapshot({ExperimentState.RUNNING: 1}, {"max_gpu_hours": 1.0}, holds=held)
    stopped = replace(snapshot, task=replace(snapshot.task, stop_reason=StopReason.MAX_GPU_HOURS))

    assert decide(stopped).cancelled_because == ""


def test_trusted_task_is_not_checked_while_it_measures() -> None:
    history = tuple(make_run(ordinal, float(ordinal)) for ordinal in (1, 2, 3))
    tally = {SUCCEEDED: 3, ExperimentState.RUNNING: 1}
    snapshot = make_snapshot(tally, {"trust": True}, open_attempts=1, history=history)
    task = replace(snapshot.task, stop_reason=StopReason.SPACE_EXHAUSTED)

    actions = decide(replace(snapshot, task=task))

    assert (actions.repetitions, actions.task.trust) == ((), None)


def test_best_is_kept_where_no_run_is_read() -> None:
    snapshot = make_snapshot({SUCCEEDED: 1, ExperimentState.RUNNING: 1})
    task = replace(snapshot.task, best_experiment_id=UUID(int=9))

    assert decide(replace(snapshot, task=task)).task.best_experiment_id == UUID(int=9)


def test_past_measurements_count_on_their_gpu_model_alone() -> None:
    trial = WarmTrial(experiment_id=UUID(int=50), parameters={"slots": 2}, score=1.0)
    warm = WarmStart(gpu_model="H100", trials=(trial,))
    snapshot = make_snapshot({}, {"strategy": "bayesian"}, history=())
    warmed = replace(snapshot, task=replace(snapshot.task, warm=warm))

    counts = []
    for gpu_model in (None, "H100", "A100"):
        question = ask(replace(warmed, gpu_model=gpu_model), INSTALLATION)
        assert question is not None
        counts.append(len(question.trials))

    assert counts == [1, 1, 0]


def test_executors_matter_where_anything_may_start() -> None:
    pending = make_snapshot({PENDING: 1}, pending=(make_experiment(PENDING),))
    searching = make_snapshot({}, SEARCH, history=())
    paused = replace(pending, task=replace(pending.task, state=TaskState.PAUSED))

    assert pending.may_start_any
    assert searching.may_start_any
    assert not paused.may_start_any
    assert not replace(pending, pending=()).may_start_any


def test_spent_task_ends_trust_with_its_reason() -> None:
    history = tuple(make_run(ordinal, float(ordinal)) for ordinal in (1, 2, 3))
    snapshot = make_snapshot({SUCCEEDED: 3}, {"trust": True}, history=history)
    spent = replace(snapshot, task=replace(snapshot.task, stop_reason=StopReason.MAX_GPU_HOURS))

    actions = decide(spent)

    assert actions.repetitions == ()
    assert actions.task.trust is not None
    assert actions.task.trust.incomplete_because == "the task has used up its GPU-hours"
    assert actions.task.state is TaskState.COMPLETED
