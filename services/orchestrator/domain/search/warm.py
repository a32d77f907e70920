"""What a search begins with of past tasks: distinguished from its own by ordinals below 1."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import FailedLevel
from schemas.task.task_file import OptimizationSpec, Strategy
from services.orchestrator.domain.search.history import Past, Trial
from services.orchestrator.domain.search.space import Place
from shared.benchmarks.verdicts.ranking import Scored

MEASURED_AGAIN: Final = 2  # the best of them, before anything else


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
    return spec.strategy in {Strategy.BAYESIAN, Strategy.AUTO} and len(spec.goals) == 1


def past_of(found: WarmStart) -> list[Past]:
    return [
        Past(
            ordinal=-number,
            state=ExperimentState.SUCCEEDED,
            parameters=each.parameters,
            scored=Scored(
                experiment_id=each.experiment_id,
                ordinal=-number,
                score=each.score,
                failed_levels=each.failed_levels,
                excess=each.excess,
            ),
        )
        for number, each in enumerate(found.trials)
    ]


def best_untried(history: Sequence[Trial], own: Sequence[Trial]) -> Place | None:
    """The next of the best past ones to be measured again; None: enough of them were."""
    known = sorted(
        (trial.standing, -trial.ordinal, trial.place)
        for trial in history
        if trial.ordinal < 1 and trial.standing is not None and trial.place is not None
    )
    places = list(dict.fromkeys(place for _, _, place in known))
    tried = {trial.place for trial in own}
    return next((each for each in places[:MEASURED_AGAIN] if each not in tried), None)
