"""What is told of a task under way: each change once, old attempts not at all."""

from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase
from schemas.gpus.device_grant import ClusterPlacement
from schemas.orchestrator.experiments import ExperimentState, TaskState
from services.cli.display.task_progress import TaskProgress, all_succeeded
from shared.ids import new_id
from tests.support.worlds.gateway_views import (
    make_attempt,
    make_experiment,
    make_gpu,
    make_gpu_info,
    make_progress,
    make_task,
)


def test_status_is_printed_once_per_change() -> None:
    waiting = make_experiment(state=ExperimentState.WAITING)
    progress = TaskProgress(task=make_task(), experiments=(waiting,))
    progress.positions = {waiting.experiment_id: 2}

    first, second = progress.news(), progress.news()
    progress.positions = {waiting.experiment_id: 1}
    third = progress.news()

    assert first == ["experiment 1/1  threads=1 parallel=1  waiting, position 2"]
    assert second == []
    assert third[0].endswith("waiting, position 1")


def test_current_attempt_moves_the_bar() -> None:
    attempt = make_attempt(phase="loading")
    running = make_experiment(state=ExperimentState.RUNNING, attempts=(attempt,))
    progress = TaskProgress(experiments=(running, make_experiment(2)))

    before = progress.status_of(running)
    progress.note(make_progress(running, attempt.attempt_id, 0.5))

    assert before == "running, loading"
    assert progress.status_of(running) == f"running, {AttemptPhase.MEASURING.value}"
    assert progress.fraction == 0.75


def test_progress_of_earlier_attempt_is_dropped() -> None:
    running = make_experiment(state=ExperimentState.RUNNING, attempts=(make_attempt(),))
    progress = TaskProgress(experiments=(running,))

    progress.note(make_progress(running, new_id(), 0.9))

    assert progress.fraction_of(running) == 0.0


def test_cluster_place_and_wait_reason_are_shown() -> None:
    placement = ClusterPlacement(cluster_id="k8s", gpus=1, node_name="gpu-7")
    attempt = replace(make_attempt(phase="starting"), cluster=placement)
    running = make_experiment(state=ExperimentState.RUNNING, attempts=(attempt,))
    progress = TaskProgress(experiments=(running,))

    report = make_progress(running, attempt.attempt_id, 0.0)
    progress.note(replace(report, phase=AttemptPhase.STARTING, message="0/3 nodes are available"))
    waiting = progress.status_of(running)
    progress.note(report)

    assert waiting == "running, starting in k8s/gpu-7: 0/3 nodes are available"
    assert progress.status_of(running) == "running, measuring in k8s/gpu-7"


def test_gpu_line_shows_readings_and_simulation() -> None:
    running = make_experiment(state=ExperimentState.RUNNING, gpu_info=make_gpu_info())
    progress = TaskProgress(experiments=(running,))

    progress.note_gpus([make_gpu(utilization_percent=93.0, temperature_c=None)])

    (line,) = progress.news()
    assert line.endswith("  running  [GPU 0 Test GPU: 93 %, 0/80000 MB, 60 W, simulated]")


def test_task_without_experiments_has_not_succeeded() -> None:
    assert not all_succeeded([])
    assert not all_succeeded([make_experiment(), make_experiment(state=ExperimentState.CANCELLED)])
    assert all_succeeded([make_experiment()])


def test_a_task_is_finished_by_its_own_state_only() -> None:
    progress = TaskProgress(task=make_task(), experiments=(make_experiment(),))
    assert not progress.is_finished

    progress.task = make_task(state=TaskState.COMPLETED)
    assert progress.is_finished
