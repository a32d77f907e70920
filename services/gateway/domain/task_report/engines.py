"""The engines of a task over several: how many configurations of each, and the best of them."""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from schemas.gateway.views import ExperimentDetail
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.report import ReportedEngine, ReportedExperiment
from schemas.task.trust import TrustVerdict
from shared.benchmarks.verdicts.engines import single_runs_text, winner_text
from shared.engines.variants import SINGLE, Variant, title_of, variant_of

Reporter = Callable[[ExperimentDetail], ReportedExperiment]


def report_engines(
    experiments: Iterable[ExperimentDetail], ranked: Sequence[ExperimentDetail], report: Reporter
) -> tuple[ReportedEngine, ...]:
    """Return the engines in the order of their best, those without one last; none where the task
    has one engine. `ranked` are those of the `experiments` that compare, best first.
    """
    by_engine: dict[Variant, dict[UUID, ExperimentDetail]] = {}
    best: dict[Variant, ExperimentDetail] = {}
    for experiment in ranked:
        best.setdefault(variant_of(experiment.parameters), experiment)
    for experiment in (*ranked, *experiments):
        variant = variant_of(experiment.parameters)
        if variant == SINGLE:
            return ()
        by_engine.setdefault(variant, {})[experiment.experiment_id] = experiment
    if len(by_engine) < 2:
        return ()
    return tuple(
        _report_engine(variant, tuple(of_engine.values()), best.get(variant), report)
        for variant, of_engine in by_engine.items()
    )


def compare_engines(trust: TrustVerdict | None, ranked: Sequence[ExperimentDetail]) -> str:
    """Return by what the best is ahead of the next engine, and how sure that is; empty where there
    is nothing to compare.
    """
    if not ranked or variant_of(ranked[0].parameters) == SINGLE:
        return ""
    best = ranked[0]
    if trust is not None:
        return winner_text(trust, best.parameters) if trust.winner == best.ordinal else ""
    of_engine = variant_of(best.parameters)
    rivals = (other for other in ranked if variant_of(other.parameters) != of_engine)
    rival = next(rivals, None)
    if rival is None or not best.objective_score or rival.objective_score is None:
        return ""
    percent = 100 * abs(rival.objective_score / best.objective_score - 1)
    return single_runs_text(best.parameters, rival.parameters, percent)


def _report_engine(
    variant: Variant,
    of_engine: Sequence[ExperimentDetail],
    best: ExperimentDetail | None,
    report: Reporter,
) -> ReportedEngine:
    reported = report(best) if best is not None else None
    return ReportedEngine(
        title=title_of(variant),
        experiments=len(of_engine),
        measured=sum(experiment.state is ExperimentState.SUCCEEDED for experiment in of_engine),
        best=reported.ordinal if reported is not None else None,
        score=reported.score if reported is not None else None,
        worse_percent=reported.worse_percent if reported is not None else None,
        remark=reported.because if reported is not None else "no configuration of it compares",
    )
