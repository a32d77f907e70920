"""What stands below a task's results, while it runs and at its end."""

import pytest
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.orchestrator.views import TaskSpending
from services.cli.display.task_outcome import NO_BEST, outcome_lines, spending_text
from tests.support.worlds.gateway_views import make_experiment, make_task

URL = "http://127.0.0.1:8470"


def test_best_is_named_with_use_and_page() -> None:
    best = make_experiment(2, parameters={"max-num-seqs": 64})
    task = make_task(state=TaskState.COMPLETED, best_experiment_id=best.experiment_id)

    lines = list(outcome_lines(task, [make_experiment(1), best], URL))

    assert lines == [
        "best: experiment 2, max-num-seqs=64",
        f"to use it: `gpusteward report task {str(task.task_id)[-12:]}` has the command lines",
        f"page: {URL}/tasks/{task.task_id}",
    ]


def test_a_running_task_has_a_best_so_far() -> None:
    best = make_experiment(1)
    task = make_task(state=TaskState.RUNNING, best_experiment_id=best.experiment_id)

    first, *_ = outcome_lines(task, [best], URL)

    assert first.startswith("best so far: experiment 1, ")


@pytest.mark.parametrize(
    ("changes", "is_over", "says"),
    [
        ({}, False, "so far: 0.42 GPU-hours, 1.47 USD; about 6 min left"),
        ({"cost": None, "seconds_left": None}, False, "so far: 0.42 GPU-hours"),
        ({"seconds_left": 9_000.0}, False, "so far: 0.42 GPU-hours, 1.47 USD; about 2.5 h left"),
        ({}, True, "used: 0.42 GPU-hours, 1.47 USD"),
    ],
)
def test_held_gpus_and_time_left_are_shown(
    changes: dict[str, float | None], is_over: bool, says: str
) -> None:
    spending = replace(
        TaskSpending(gpu_hours=0.42, cost=1.469, currency="USD", seconds_left=360.0), **changes
    )

    assert spending_text(spending, is_over=is_over) == says


def test_missing_best_is_said_only_at_end() -> None:
    scored = [make_experiment(1, state=ExperimentState.SUCCEEDED)]

    ended = list(outcome_lines(make_task(state=TaskState.COMPLETED), scored, URL))
    running = list(outcome_lines(make_task(state=TaskState.RUNNING), scored, URL))

    assert ended[0] == NO_BEST
    assert [line.partition(":")[0] for line in running] == ["page"]
