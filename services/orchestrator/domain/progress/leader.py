"""The best experiment of a task."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.trust import RunRole
from services.orchestrator.domain.records import Task
from services.orchestrator.domain.search.history import RunRecord, with_settings_compared
from shared.benchmarks.verdicts.ranking import rank
from shared.benchmarks.verdicts.run_settings import other_settings


def find_best(task: Task, history: Sequence[RunRecord]) -> UUID | None:
    """Return the best experiment that meets the constraints; None where there is none yet."""
    past = with_settings_compared(
        [run for run in history if run.state is ExperimentState.SUCCEEDED]
    )
    scores = {
        run.ordinal: run.scored
        for run in past
        if run.run.role is RunRole.SEARCH and run.scored is not None
    }
    if task.trust is not None:
        # What is named best is the configuration, by its first run, as in all of the verdict.
        winner = scores.get(task.trust.winner or 0)
        return winner.experiment_id if winner is not None else None
    runs = {run.ordinal: run.run for run in past}
    settings = other_settings(runs, (run.parameters for run in past))
    scored = [
        replace(score, other_setting=settings.get(ordinal, "")) for ordinal, score in scores.items()
    ]
    ranked = rank(task.file.optimization.objective, scored).ranked
    # One that misses the constraints may be the nearest, and is not best.
    return ranked[0].experiment_id if ranked and not ranked[0].excess else None
