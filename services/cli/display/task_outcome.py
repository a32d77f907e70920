"""What a task has come to: its best configuration, how far to trust it, and what to do next."""

from collections.abc import Iterator, Sequence

from schemas.orchestrator.experiments import FINISHED_TASK_STATES, ExperimentState
from schemas.orchestrator.views import ExperimentView, TaskSpending, TaskView
from services.cli.display.output import settings_text
from services.cli.display.tables import short
from services.cli.display.task_results import ending_lines

NO_BEST = "best: none; each has no score, or failed at a load that another one served"


def outcome_lines(task: TaskView, experiments: Sequence[ExperimentView], url: str) -> Iterator[str]:
    """Return the lines below the results; `url` is the platform's."""
    is_over = task.state in FINISHED_TASK_STATES
    if task.spending is not None:
        yield spending_text(task.spending, is_over=is_over)
    best = best_of(task, experiments)
    if best is not None:
        which = "best" if is_over else "best so far"
        yield f"{which}: experiment {best.ordinal}, {settings_text(best.parameters)}"
    elif is_over and any(
        experiment.state is ExperimentState.SUCCEEDED for experiment in experiments
    ):
        yield NO_BEST
    yield from ending_lines(task)
    yield from _next_lines(task, best, url)


def spending_text(spending: TaskSpending, *, is_over: bool) -> str:
    """Return `so far 0.42 GPU-hours, 1.47 USD; about 6 min left`."""
    hours = spending.gpu_hours
    parts = [f"{hours:.2f} GPU-hours" if hours >= 0.1 else f"{hours * 3600:.0f} GPU-seconds"]
    if spending.cost is not None:
        parts.append(f"{spending.cost:.2f} {spending.currency}")
    if is_over:
        return f"used: {', '.join(parts)}"
    left_seconds = spending.seconds_left
    ending = f"; about {duration_text(left_seconds)} left" if left_seconds is not None else ""
    return f"so far: {', '.join(parts)}{ending}"


def duration_text(seconds: float) -> str:
    """Return a length of time as people say it: `40 s`, `6 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def best_of(task: TaskView, experiments: Sequence[ExperimentView]) -> ExperimentView | None:
    """Return the task's best experiment; None if it has none."""
    return next((e for e in experiments if e.experiment_id == task.best_experiment_id), None)


def _next_lines(task: TaskView, best: ExperimentView | None, url: str) -> Iterator[str]:
    if best is not None:
        yield f"to use it: `gpusteward report task {short(task.task_id)}` has the command lines"
    yield f"page: {url}/tasks/{task.task_id}"
