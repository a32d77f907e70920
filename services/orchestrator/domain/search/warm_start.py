"""What a search begins with of past tasks: distinguished from its own by ordinals below 1."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import FailedLevel
from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.search.history import RunRecord, Trial
from services.orchestrator.domain.search.space import Place
from shared.benchmarks.verdicts.ranking import Scored

MAX_PAST_REPEATED: Final = 2  # the best of them, before anything else


class WarmTrial(Struct, frozen=True, kw_only=True):
    """A past experiment; its score is comparable, as the same was measured in the same way."""

    experiment_id: UUID
    parameters: dict[str, Any]
    score: float
    failed_levels: tuple[FailedLevel, ...] = ()
    excess: float = 0.0


class WarmStart(Struct, frozen=True, kw_only=True):
    """What was known when the task was submitted, so that its history stays what it is."""

    gpu_model: str
    trials: tuple[WarmTrial, ...]


def is_warmed(spec: OptimizationSpec) -> bool:
    return spec.strategy.traits.takes_warm_start and len(spec.goals) == 1


def past_of(warm_start: WarmStart) -> list[RunRecord]:
    return [
        RunRecord(
            ordinal=-number,
            state=ExperimentState.SUCCEEDED,
            parameters=warm_trial.parameters,
            scored=Scored(
                experiment_id=warm_trial.experiment_id,
                ordinal=-number,
                score=warm_trial.score,
                failed_levels=warm_trial.failed_levels,
                excess=warm_trial.excess,
            ),
        )
        for number, warm_trial in enumerate(warm_start.trials)
    ]


def best_untried(past: Sequence[Trial], own_trials: Sequence[Trial]) -> Place | None:
    """Return the next of the best past places to be measured again; None: enough of them were."""
    ranked = sorted(
        (trial.standing, -trial.ordinal, trial.place)
        for trial in past
        if trial.standing is not None and trial.place is not None
    )
    best = list(dict.fromkeys(place for _, _, place in ranked))[:MAX_PAST_REPEATED]
    places = {trial.place for trial in own_trials}
    return next((place for place in best if place not in places), None)
