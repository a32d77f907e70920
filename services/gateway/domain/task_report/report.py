"""The report of one task."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from schemas.gateway.views import ExperimentDetail
from schemas.orchestrator.experiments import FINISHED_TASK_STATES, ExperimentState
from schemas.orchestrator.views import TaskView
from schemas.results.reports import WaterfallView
from schemas.task.dataset import DatasetUse
from schemas.task.objectives import Objective
from schemas.task.report import (
    Deployments,
    NotTried,
    ParameterChange,
    ReportedExperiment,
    SearchCost,
    TaskReport,
)
from schemas.task.task_file import OptimizationSpec
from schemas.task.trace import TraceUse
from schemas.task.trust import RunRole, TrustedConfiguration, TrustVerdict
from services.gateway.domain.task_report.deployments import deployments
from services.gateway.domain.task_report.engines import compare_engines, report_engines
from services.gateway.domain.task_report.importance import importance
from services.gateway.domain.task_report.pareto import objectives_front, pareto_front
from shared.benchmarks.levels.level_text import describe_failed_levels
from shared.benchmarks.verdicts.constraints import describe_missed, excess_of
from shared.benchmarks.verdicts.ranking import MEASURES, Scored, order_by_trust, rank
from shared.benchmarks.verdicts.run_settings import (
    describe_canaries,
    describe_engine_uses,
    describe_hosts,
)
from shared.benchmarks.verdicts.scored_experiments import score_experiments
from shared.benchmarks.verdicts.trust import trust_text

Use = TypeVar("Use", DatasetUse, TraceUse)


def task_report(
    task: TaskView,
    experiments: Sequence[ExperimentDetail],
    waterfall: WaterfallView | None,
    *,
    missing: Sequence[str] = (),
) -> TaskReport:
    """`experiments` are all of the task's, in order of expansion."""
    of_search = [experiment for experiment in experiments if experiment.run.role is RunRole.SEARCH]
    measured = [
        experiment for experiment in experiments if experiment.state is ExperimentState.SUCCEEDED
    ]
    by_id = {experiment.experiment_id: experiment for experiment in measured}
    scored = score_experiments(experiments)
    ranking = order_by_trust(
        task.trust,
        rank(
            task.objective,
            [scored[experiment.ordinal] for experiment in measured if experiment in of_search],
        ),
    )
    ranked = [by_id[entry.experiment_id] for entry in ranking.ranked]
    unranked = [by_id[entry.experiment_id] for entry in ranking.unranked]
    best = ranked[0] if ranked else None
    if task.trust is not None and task.trust.winner is None and best and not excess_of(best.slo):
        best = None
    first = experiments[0] if experiments else None
    baseline = first if first in ranked else None
    reported = _reporter(task.objective, best, task.trust, scored)
    return TaskReport(
        task_id=task.task_id,
        task_name=task.task_name,
        state=task.state,
        objective=task.objective,
        measure=_measure(task),
        verdict=_verdict(task, ranked, len(measured)),
        simulated=any(experiment.engine.engine == "simulated" for experiment in experiments),
        experiments=len(experiments),
        succeeded=len(measured),
        best=reported(best) if best is not None else None,
        baseline=reported(baseline) if baseline is not None else None,
        changes=_changes(baseline, best) if baseline is not None and best is not None else (),
        importance=importance(
            _varying_parameters(of_search),
            [
                (experiment.parameters, score)
                for experiment in ranked
                if (score := experiment.objective_score)
            ],
        ),
        others=tuple(
            reported(experiment) for experiment in [*ranked, *unranked] if experiment is not best
        ),
        not_tried=tuple(_not_tried(task, experiments)),
        cost=_cost(task, waterfall) if waterfall is not None else None,
        deployments=(
            deployments(task.task_name, best.engine, best.request)
            if best is not None
            else Deployments()
        ),
        notes=(
            *task.notes,
            *describe_hosts({e.ordinal: e.run for e in measured}),
            *describe_engine_uses({e.ordinal: e.run for e in measured}),
            *describe_canaries(e.benchmark.canary for e in measured if e.benchmark is not None),
        ),
        stop_reason=task.stop_reason,
        trust=task.trust,
        engines=report_engines(of_search, ranked, reported),
        pareto=pareto_front([experiment for experiment in ranked if not excess_of(experiment.slo)]),
        missing=tuple(missing),
        datasets=tuple(_each_file(experiment.dataset for experiment in measured)),
        traces=tuple(_each_file(experiment.trace for experiment in measured)),
        front=objectives_front(
            task.task.optimization.goals if task.task is not None else (),
            [experiment for experiment in ranked if not excess_of(experiment.slo)],
        ),
    )


def _each_file(uses: Iterable[Use | None]) -> Iterator[Use]:
    """Yield each file once, as the first experiment that read it used it."""
    digests: set[str] = set()
    for use in uses:
        if use is not None and use.sha256 not in digests:
            digests.add(use.sha256)
            yield use


def _measure(task: TaskView) -> str:
    name = MEASURES[task.objective]
    is_penalized = task.task is not None and task.task.slo is not None
    return f"{name} with the penalty of slo" if is_penalized else name


def _verdict(task: TaskView, ranked: Sequence[ExperimentDetail], measured: int) -> str:
    if not measured:
        return "nothing was measured"
    if not ranked:
        return "no experiment served the loads that others served: none is best"
    if excess_of(ranked[0].slo):
        nearest = (
            f"the nearest, experiment {ranked[0].ordinal}, misses {describe_missed(ranked[0].slo)}"
        )
        return f"none meets the constraints: {nearest}"
    if task.trust is not None:
        return _with_engines(trust_text(task.trust), task, ranked)
    so_far = "" if task.state in FINISHED_TASK_STATES else " so far"
    best = f"experiment {ranked[0].ordinal} is the best of {len(ranked)} that compare{so_far}"
    return _with_engines(best, task, ranked)


def _with_engines(text: str, task: TaskView, ranked: Sequence[ExperimentDetail]) -> str:
    comparison = compare_engines(task.trust, ranked)
    return f"{text}; {comparison}" if comparison else text


def _reporter(
    objective: Objective,
    best: ExperimentDetail | None,
    trust: TrustVerdict | None,
    scored: Mapping[int, Scored],
) -> Callable[[ExperimentDetail], ReportedExperiment]:
    standings = trust.standings if trust is not None else {}
    leading = best.objective_score if best is not None else None
    sign = -1.0 if objective.is_maximized else 1.0
    failed = set(scored[best.ordinal].failed_loads) if best is not None else set()

    def report_experiment(experiment: ExperimentDetail) -> ReportedExperiment:
        score, metrics = experiment.objective_score, experiment.metrics
        worse, reason = None, "it has no score"
        if score is not None and leading:
            worse, reason = sign * (score - leading) / abs(leading) * 100, ""
        standing = standings.get(experiment.ordinal)
        if trust is not None and standing is not None:
            score = standing.mean_score
            worse, reason = _behind_winner(trust, standing)
        elif scored[experiment.ordinal].other_setting:
            worse, reason = None, scored[experiment.ordinal].other_setting
        elif metrics is not None and scored[experiment.ordinal].failed_loads != failed:
            worse = None
            reason = f"did not serve {describe_failed_levels(metrics.failed_levels)}"
        elif excess_of(experiment.slo):
            worse, reason = None, f"misses {describe_missed(experiment.slo)}"
        return ReportedExperiment(
            experiment_id=experiment.experiment_id,
            ordinal=experiment.ordinal,
            parameters=experiment.parameters,
            score=score,
            worse_percent=worse,
            because=reason,
            quality=experiment.slo.quality if experiment.slo is not None else None,
            boundary=metrics.boundary if metrics is not None else None,
            predicted_score=experiment.predicted_score,
        )

    return report_experiment


def _behind_winner(trust: TrustVerdict, standing: TrustedConfiguration) -> tuple[float | None, str]:
    """Return by how many percent a configuration is worse than the winner, or why that is open."""
    if standing.undecided_because:
        return None, f"not decided: {standing.undecided_because}"
    if standing.ordinal in trust.ties:
        return None, f"cannot be told from experiment {trust.winner}"
    if standing.behind_percent < 0:
        return None, "measured better, and nothing was measured twice"
    return standing.behind_percent, ""


def _varying_parameters(experiments: Sequence[ExperimentDetail]) -> list[str]:
    names = dict.fromkeys(name for experiment in experiments for name in experiment.parameters)
    return [
        name
        for name in names
        if len({repr(experiment.parameters.get(name)) for experiment in experiments}) > 1
    ]


def _changes(baseline: ExperimentDetail, best: ExperimentDetail) -> tuple[ParameterChange, ...]:
    names = dict.fromkeys([*baseline.parameters, *best.parameters])
    pairs = ((name, baseline.parameters.get(name), best.parameters.get(name)) for name in names)
    return tuple(
        ParameterChange(name=name, baseline=baseline_value, best=best_value)
        for name, baseline_value, best_value in pairs
        if baseline_value != best_value
    )


def _not_tried(task: TaskView, experiments: Sequence[ExperimentDetail]) -> Iterator[NotTried]:
    if task.cut:
        yield NotTried(count=task.cut, ordinals=(), reason="left out by max_iterations")
    by_reason: dict[str, list[int]] = {}
    for experiment in experiments:
        if experiment.state is not ExperimentState.SUCCEEDED:
            by_reason.setdefault(_why_not(experiment), []).append(experiment.ordinal)
    for reason, ordinals in by_reason.items():
        yield NotTried(count=len(ordinals), ordinals=tuple(ordinals), reason=reason)


def _why_not(experiment: ExperimentDetail) -> str:
    match experiment.state:
        case ExperimentState.FAILED:
            failure = experiment.failure
            if failure is not None:
                return f"failed: {failure.kind.value}: {failure.message}"
            return f"failed: {experiment.reason}"
        case ExperimentState.CANCELLED:
            return f"cancelled: {experiment.reason}"
    return "not measured yet"


def _cost(task: TaskView, waterfall: WaterfallView) -> SearchCost:
    steps = waterfall.steps
    costs = [step.cost for step in steps]
    known_costs = [cost for cost in costs if cost is not None]
    budget = task.task.optimization if task.task is not None else OptimizationSpec()
    return SearchCost(
        attempts=waterfall.attempts,
        gpu_seconds=sum(step.gpu_seconds for step in steps),
        measuring_gpu_seconds=sum(s.gpu_seconds for s in steps if s.step == "measuring"),
        cost=sum(known_costs) if len(known_costs) == len(costs) else None,
        currency=waterfall.currency,
        max_cost=budget.max_cost,
        max_gpu_hours=budget.max_gpu_hours,
    )
