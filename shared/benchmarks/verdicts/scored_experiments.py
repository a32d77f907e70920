"""What the experiments of a task rank by."""

from collections.abc import Sequence

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView
from shared.benchmarks.verdicts.constraints import excess_of
from shared.benchmarks.verdicts.ranking import Scored
from shared.benchmarks.verdicts.run_settings import other_settings


def score_experiments(experiments: Sequence[ExperimentView]) -> dict[int, Scored]:
    """Return what those that succeeded rank by, runs that repeat others too, by ordinal."""
    succeeded = [
        experiment for experiment in experiments if experiment.state is ExperimentState.SUCCEEDED
    ]
    other_settings_by_ordinal = other_settings(
        {experiment.ordinal: experiment.run for experiment in succeeded},
        (experiment.parameters for experiment in succeeded),
    )
    return {
        experiment.ordinal: Scored(
            experiment_id=experiment.experiment_id,
            ordinal=experiment.ordinal,
            score=experiment.objective_score,
            failed_levels=experiment.metrics.failed_levels
            if experiment.metrics is not None
            else (),
            excess=excess_of(experiment.slo),
            other_setting=other_settings_by_ordinal.get(experiment.ordinal, ""),
        )
        for experiment in succeeded
    }
