"""What a search has tried, and how each configuration stands among them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import FINISHED_EXPERIMENT_STATES, ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo
from services.orchestrator.domain.search.space import Place, Space
from shared.benchmarks.verdicts.ranking import Scored, by_fronts, rank
from shared.benchmarks.verdicts.run_settings import other_settings


class RunRecord(Struct, frozen=True, kw_only=True):
    """An experiment of the task. `scored`: it succeeded; `reason` is why it ended otherwise."""

    ordinal: int
    state: ExperimentState
    parameters: dict[str, Any]
    scored: Scored | None = None
    failure: FailureKind | None = None
    run: RunInfo = RunInfo()
    reason: str = ""


class Trial(Struct, frozen=True, kw_only=True):
    """A configuration that was proposed before; `place` None: it is not in the space.

    `standing` counts from 0, the best; those that failed share the last. None: not known yet, or
    never, as it was cancelled. `is_open`: it is waiting or running. It stands among those of the
    same `divisor` of the requests.
    """

    ordinal: int
    place: Place | None
    standing: int | None = None
    failure: FailureKind | None = None
    is_open: bool = False
    has_failed: bool = False
    divisor: int = 1


def with_settings_compared(past: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs, those on another setting than most contaminated by it: only a run of the
    same configuration on the usual setting says something against the others.
    """
    reasons = other_settings(
        {run.ordinal: run.run for run in past}, (run.parameters for run in past)
    )
    return [
        replace(run, run=replace(run.run, contaminated=(*run.run.contaminated, reason)))
        if (reason := reasons.get(run.ordinal))
        else run
        for run in past
    ]


def trials_of(goals: Sequence[Objective], space: Space, past: Sequence[RunRecord]) -> list[Trial]:
    """Return the trials in order of their ordinals. With several goals a configuration stands by
    how many fronts of others are before it, then by the first.
    """
    trials = [
        trial
        for divisor in {run.run.request_divisor for run in past}
        for trial in _trials_of(
            goals, space, [run for run in past if run.run.request_divisor == divisor]
        )
    ]
    return sorted(trials, key=lambda trial: trial.ordinal)


def _trials_of(goals: Sequence[Objective], space: Space, past: Sequence[RunRecord]) -> list[Trial]:
    ranking = rank(goals[0], [run.scored for run in past if run.scored is not None])
    ranked = by_fronts(ranking.ranked) if len(goals) > 1 else ranking.ranked
    ordered = (*ranked, *ranking.unranked)
    standings = {scored.ordinal: standing for standing, scored in enumerate(ordered)}

    def standing(run: RunRecord) -> int | None:
        is_failed = run.state is ExperimentState.FAILED
        return len(ordered) if is_failed else standings.get(run.ordinal)

    return [
        Trial(
            ordinal=run.ordinal,
            place=space.place(run.parameters),
            standing=standing(run),
            failure=run.failure,
            is_open=run.state not in FINISHED_EXPERIMENT_STATES,
            has_failed=run.state is ExperimentState.FAILED,
            divisor=run.run.request_divisor,
        )
        for run in past
    ]
