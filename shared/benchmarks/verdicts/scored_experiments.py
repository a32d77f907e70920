"""What the experiments of a task rank by."""

from collections.abc import Sequence

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView
from shared.benchmarks.verdicts.constraints import excess_of
from shared.benchmarks.verdicts.ranking import Scored
from shared.benchmarks.verdicts.run_settings import other_settings


def scored_experiments(experiments: Sequence[ExperimentView]) -> dict[int, Scored]:
    """Return what those that succeeded rank by, runs that repeat others too, by ordinal."""
    succeeded = [each for each in experiments if each.state is ExperimentState.SUCCEEDED]
    others = other_settings(
        {each.ordinal: each.run for each in succeeded}, (each.parameters for each in experiments)
    )
    return {
        each.ordinal: Scored(
            experiment_id=each.experiment_id,
            ordinal=each.ordinal,
            score=each.objective_score,
            failed_levels=each.metrics.failed_levels if each.metrics is not None else (),
            excess=excess_of(each.slo),
            other_setting=others.get(each.ordinal, ""),
        )
        for each in succeeded
    }
