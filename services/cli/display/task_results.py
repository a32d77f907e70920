"""The result of a task: experiments by rank, and what their GPUs did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import click

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.objectives import Objective
from schemas.task.stop_words import STOPPED
from schemas.task.trust import RunRole, TrustVerdict
from schemas.telemetry.monitoring import GpuStats
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.measures import measure_headings, metric_cells
from services.cli.display.output import number, print_table, settings_text, span
from services.cli.display.tables import attempts_text, short, why_waiting
from shared.benchmarks.levels.bracket import bracket_text, odd_about
from shared.benchmarks.levels.level_text import describe_failed_levels, percent_text
from shared.benchmarks.quality.agreement import quality_text
from shared.benchmarks.verdicts.constraints import describe_missed, excess_of
from shared.benchmarks.verdicts.ranking import (
    MEASURES,
    Ranking,
    compute_error_percent,
    order_by_trust,
    rank,
)
from shared.benchmarks.verdicts.scored_experiments import score_experiments
from shared.benchmarks.verdicts.trust import trust_lines, trust_text

SIMULATED_ENGINE: Final = "simulated"
# The column of what an objective ranks by, where there is one.
_MEASURED_IN: Final[Mapping[Objective | None, tuple[str, ...]]] = {
    Objective.MINIMIZE_LATENCY: ("e2e s",),
    Objective.MAXIMIZE_THROUGHPUT: ("max per GPU",),
    Objective.MINIMIZE_TTFT: ("ttft ms",),
    Objective.MINIMIZE_TPOT: ("tpot ms",),
}
LOG_LINES: Final = 3
WHOLE_LOG_TAIL: Final = 1_000


def rank_experiments(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
) -> list[ExperimentView]:
    """The best first; those without a rank come last, unmeasured ones after measured."""
    return _order_by_rank(experiments, _ranking(experiments, objective, trust))


def _order_by_rank(experiments: Sequence[ExperimentView], ranking: Ranking) -> list[ExperimentView]:
    order = [scored.experiment_id for scored in (*ranking.ranked, *ranking.unranked)]
    places = {experiment_id: place for place, experiment_id in enumerate(order)}
    last = len(order)
    return sorted(experiments, key=lambda e: (places.get(e.experiment_id, last), e.ordinal))


def _ranks(ranking: Ranking) -> dict[UUID, int]:
    return {scored.experiment_id: rank for rank, scored in enumerate(ranking.ranked, start=1)}


def _ranking(
    experiments: Sequence[ExperimentView], objective: Objective | None, trust: TrustVerdict | None
) -> Ranking:
    of_search = {
        experiment.ordinal for experiment in experiments if experiment.run.role is RunRole.SEARCH
    }
    scored = score_experiments(experiments)
    by_first_run = rank(
        objective, (entry for ordinal, entry in scored.items() if ordinal in of_search)
    )
    return order_by_trust(trust, by_first_run)


def other_setting_lines(experiments: Sequence[ExperimentView]) -> list[str]:
    """Return which experiments are not compared as they ran on something else than most."""
    return [
        f"experiment {ordinal} is not compared: {scored.other_setting}"
        for ordinal, scored in score_experiments(experiments).items()
        if scored.other_setting
    ]


def varying_parameters(experiments: Sequence[ExperimentView]) -> list[str]:
    """Names of the parameters that differ between experiments; all of them if none does."""
    names = list(
        dict.fromkeys(name for experiment in experiments for name in experiment.parameters)
    )
    differing = [
        name
        for name in names
        if len({repr(experiment.parameters.get(name)) for experiment in experiments}) > 1
    ]
    return differing or names


def result_table(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
) -> Table:
    """Experiments ranked by the objective, or by the task's verdict, with their benchmark metrics.

    With a verdict each configuration has the mean score of its runs, by which it ranks.
    """
    names = varying_parameters(experiments)
    ranking = _ranking(experiments, objective, trust)
    ranks = _ranks(ranking)
    means = _mean_scores(trust)
    mean_heading = ["mean of runs"] if means else []
    measures = measure_headings(experiments)
    searched = ["max load"] if objective is not None and objective.traits.needs_load_search else []
    rows = [
        [
            number(ranks.get(experiment.experiment_id)),
            str(experiment.ordinal),
            experiment.state.value,
            settings_text(experiment.parameters, names),
            *[means.get(experiment.ordinal, UNKNOWN) for _ in mean_heading],
            *[_bracket(experiment.metrics) for _ in searched],
            *(metric_cells(experiment.metrics)[heading] for heading in measures),
            attempts_text(experiment),
            short(experiment.experiment_id),
        ]
        for experiment in _order_by_rank(experiments, ranking)
    ]
    headings = [
        *("rank", "#", "state", "parameters", *mean_heading, *searched, *measures),
        *("attempts", "id"),
    ]
    numeric = frozenset(headings) - {"state", "parameters", "attempts", "id"}
    title = f"experiments by {objective.value} ({MEASURES[objective]})" if objective else ""
    return Table(
        headings,
        rows,
        title=title,
        numeric=numeric,
        important=tuple(
            dict.fromkeys(
                heading
                for heading in (
                    *("rank", "#", *mean_heading, *searched, *_MEASURED_IN.get(objective, ())),
                    *("parameters", "state", "levels", "ttft ms", "tpot ms", "e2e s", "items/s"),
                    *("output tok/s", "per GPU", "max total tok/s", "max per GPU", "requests"),
                    *("e2e p99 s", "attempts", "id"),
                )
                if heading in headings
            )
        ),
        shortened=frozenset({"parameters"}),
        cut_last=frozenset({"parameters"}),
    )


def _mean_scores(trust: TrustVerdict | None) -> dict[int, str]:
    """Return what each configuration ranks by, by the ordinal of its first run: `0.102 (3)`."""
    standings = trust.standings if trust is not None else {}
    return {
        ordinal: f"{standing.mean_score:.4g} ({standing.runs})"
        for ordinal, standing in standings.items()
    }


def _bracket(metrics: BenchmarkMetrics | None) -> str:
    boundary = metrics.boundary if metrics is not None else None
    return bracket_text(boundary) if boundary is not None else UNKNOWN


def boundary_lines(experiments: Sequence[ExperimentView], objective: Objective | None) -> list[str]:
    """Return what is odd about the load at which experiments no longer meet the constraints."""
    return [
        f"experiment {experiment.ordinal} {odd}"
        for experiment in rank_experiments(experiments, objective)
        if experiment.metrics is not None and experiment.metrics.boundary is not None
        for odd in odd_about(experiment.metrics.boundary)
    ]


def level_failure_lines(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
) -> list[str]:
    """The loads that measured experiments did not serve, and what follows."""
    ranking = _ranking(experiments, objective, trust)
    ranks = _ranks(ranking)
    lines = []
    for experiment in _order_by_rank(experiments, ranking):
        metrics = experiment.metrics
        if metrics is None or not metrics.failed_levels:
            continue
        is_ranked = experiment.experiment_id in ranks
        why = "did not serve" if is_ranked else "has no rank, as another one served what it did not"
        limit = percent_text(metrics.max_error_rate or 0.0)
        lines.append(
            f"experiment {experiment.ordinal} {why}:"
            f" {describe_failed_levels(metrics.failed_levels)}"
            f" (at most {limit} of the requests may fail: max_error_rate)"
        )
    return lines


def constraint_miss_lines(
    experiments: Sequence[ExperimentView], objective: Objective | None
) -> list[str]:
    """Say which of the task's constraints each measured experiment misses, and by how much."""
    return [
        f"experiment {experiment.ordinal} misses {describe_missed(experiment.slo)}"
        for experiment in rank_experiments(experiments, objective)
        if excess_of(experiment.slo)
    ]


def quality_lines(experiments: Sequence[ExperimentView], objective: Objective | None) -> list[str]:
    """Return how far each that answers well enough answers as the baseline does."""
    return [
        f"experiment {experiment.ordinal} answers: {quality_text(experiment.slo.quality)}"
        for experiment in rank_experiments(experiments, objective)
        if experiment.slo is not None
        and experiment.slo.quality is not None
        and not experiment.slo.quality.excess
        and experiment.slo.quality.baseline != experiment.ordinal
    ]


def gpu_result_table(experiments: Sequence[ExperimentView]) -> Table | None:
    """Return a table of the GPUs of each experiment while it was measured; None if nothing was
    sampled.
    """
    rows = []
    for experiment in experiments:
        if (monitoring := experiment.gpu_monitoring) is None:
            continue
        for index, stats in sorted(monitoring.gpu_stats.items()):
            rows.append(
                [
                    str(experiment.ordinal),
                    f"{index} {stats.name}",
                    *gpu_cells(stats),
                    number(monitoring.coverage_percent),
                    number(monitoring.energy_wh, 3),
                    "simulated" if monitoring.simulated else "measured",
                ]
            )
    headings = [
        *("#", "GPU", "util %", "memory MB", "temp C", "power W", "samples"),
        *("coverage %", "energy Wh", "source"),
    ]
    numeric = frozenset(headings) - {"GPU", "source"}
    title = "GPUs while measured, min/mean/max"
    table = Table(
        headings,
        rows,
        title=title,
        numeric=numeric,
        important=("GPU", "source", "util %", "memory MB", "power W", "energy Wh", "temp C"),
        shortened=frozenset({"GPU"}),
    )
    return table if rows else None


def trust_warning_lines(experiments: Sequence[ExperimentView]) -> list[str]:
    """Return whose GPU numbers cover too little of their runs, or are missing, and why."""
    return [
        f"experiment {experiment.ordinal}: {what}: {monitoring.untrusted_because}"
        for experiment in experiments
        if (monitoring := experiment.gpu_monitoring) is not None and monitoring.trusted is False
        for what in ["do not trust its GPU numbers" if monitoring.gpu_stats else "no GPU numbers"]
    ]


def gpu_cells(stats: GpuStats) -> list[str]:
    """Return the smallest, mean and largest of each reading, and how many there were."""
    spreads = (stats.memory_used_mb, stats.temperature_c, stats.power_draw_w)
    use = stats.utilization
    return [
        span(use.min, use.mean, use.max),
        *(span(spread.min, spread.mean, spread.max) for spread in spreads),
        str(use.samples),
    ]


def origin_lines(experiment: ExperimentView) -> list[str]:
    """Return what was known of it before it took a GPU, and whether it ran elsewhere."""
    lines = [
        f"preflight, {finding.subject}: {finding.message}"
        + (f"; {finding.action}" if finding.action else "")
        for finding in experiment.preflight
    ]
    if experiment.predicted_score is not None:
        predicted, measured = experiment.predicted_score, experiment.objective_score
        off = (
            ""
            if measured is None
            else f", off by {compute_error_percent(predicted, measured):.0f} %"
        )
        lines.append(f"its prior predicted {predicted:.4g}, measured: {number(measured, 4)}{off}")
    if experiment.run.engine_use:
        lines.append(f"engine: {experiment.run.engine_use}")
    if experiment.imported_at is not None:
        lines.append(f"imported {experiment.imported_at:%Y-%m-%d %H:%M} UTC: measured elsewhere")
    return lines


def failure_lines(experiments: Sequence[ExperimentView], *, log_lines: int) -> list[str]:
    """Return why experiments failed, their engines' last lines, and once for each cause what to
    do.
    """
    by_hint: dict[str, list[ExperimentView]] = {}
    for experiment in experiments:
        if experiment.state is ExperimentState.FAILED:
            hint = experiment.failure.hint if experiment.failure is not None else ""
            by_hint.setdefault(hint, []).append(experiment)
    lines = []
    for hint, affected in by_hint.items():
        for experiment in affected:
            lines.append(_failure_line(experiment))
            tail = experiment.failure.log_tail if experiment.failure is not None else ()
            lines.extend(f"    {line}" for line in tail[-log_lines:])
        if hint:
            lines.append(f"  what to do: {hint}")
    return lines


def _failure_line(experiment: ExperimentView) -> str:
    failure = experiment.failure
    phase = failure.phase.value.replace("_", " ") if failure is not None and failure.phase else ""
    during = f" while {phase}" if phase else ""
    node = f" on {experiment.executor_id}" if experiment.executor_id else ""
    why = why_waiting(experiment) or "no reason given"
    return f"experiment {experiment.ordinal} failed{during}{node}: {why}"


def print_results(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
    *,
    log_lines: int = LOG_LINES,
) -> None:
    """Print both tables, and why experiments failed, with that many of their engines' last
    lines.
    """
    if not experiments:
        return
    print_table(result_table(experiments, objective, trust))
    if any(experiment.engine.engine == SIMULATED_ENGINE for experiment in experiments):
        click.echo("the engine is simulated: these latencies and rates are made up")
    for line in level_failure_lines(experiments, objective, trust):
        click.echo(line)
    lines = [
        *other_setting_lines(experiments),
        *constraint_miss_lines(experiments, objective),
        *quality_lines(experiments, objective),
        *boundary_lines(experiments, objective),
    ]
    for line in lines:
        click.echo(line)
    in_order = rank_experiments(experiments, objective, trust)
    gpu_results = gpu_result_table(in_order)
    if gpu_results is not None:
        click.echo()
        print_table(gpu_results)
    for line in trust_warning_lines(in_order):
        click.echo(line)
    for line in failure_lines(experiments, log_lines=log_lines):
        click.echo(line)


def ending_lines(task: TaskView) -> Iterator[str]:
    """Yield why nothing further is tried, and how far the best result can be trusted."""
    if task.stop_reason is not None:
        yield f"stopped: {STOPPED[task.stop_reason]} ({task.stop_reason.value})"
    if task.trust is not None:
        yield trust_text(task.trust)
        yield from trust_lines(task.trust)
