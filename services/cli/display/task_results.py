"""The result of a task: experiments by rank, and what their GPUs did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import click

from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ExperimentView, TaskView
from schemas.task.benchmark import BenchmarkMetrics
from schemas.task.stop_words import STOPPED
from schemas.task.task_file import Objective
from schemas.task.trust import RunRole, TrustVerdict
from schemas.telemetry.monitoring import GpuStats
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, print_table, settings_text, span
from services.cli.display.tables import attempts_text, short, why_waiting
from shared.benchmarks.levels.bracket import bracket_text, odd_about
from shared.benchmarks.levels.level_text import failed_levels_text, percent_text
from shared.benchmarks.quality.agreement import quality_text
from shared.benchmarks.verdicts.constraints import excess_of, missed_text
from shared.benchmarks.verdicts.ranking import MEASURES, Ranking, ordered_by, rank
from shared.benchmarks.verdicts.scored_experiments import scored_experiments
from shared.benchmarks.verdicts.trust import trust_lines, trusted_text

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


def ranked(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
) -> list[ExperimentView]:
    """The best first; those without a rank come last, unmeasured ones after measured."""
    return _ordered(experiments, _ranking(experiments, objective, trust))


def _ordered(experiments: Sequence[ExperimentView], ranking: Ranking) -> list[ExperimentView]:
    order = [each.experiment_id for each in (*ranking.ranked, *ranking.unranked)]
    places = {experiment_id: place for place, experiment_id in enumerate(order)}
    last = len(order)
    return sorted(experiments, key=lambda e: (places.get(e.experiment_id, last), e.ordinal))


def _ranks(ranking: Ranking) -> dict[UUID, int]:
    return {each.experiment_id: rank for rank, each in enumerate(ranking.ranked, start=1)}


def _ranking(
    experiments: Sequence[ExperimentView], objective: Objective | None, trust: TrustVerdict | None
) -> Ranking:
    of_search = {each.ordinal for each in experiments if each.run.role is RunRole.SEARCH}
    scored = scored_experiments(experiments)
    by_first_run = rank(
        objective, (each for ordinal, each in scored.items() if ordinal in of_search)
    )
    return ordered_by(trust, by_first_run)


def other_setting_lines(experiments: Sequence[ExperimentView]) -> list[str]:
    """Return which experiments are not compared as they ran on something else than most."""
    return [
        f"experiment {ordinal} is not compared: {scored.other_setting}"
        for ordinal, scored in scored_experiments(experiments).items()
        if scored.other_setting
    ]


def varied(experiments: Sequence[ExperimentView]) -> list[str]:
    """Names of the parameters that differ between experiments; all of them if none does."""
    names = list(dict.fromkeys(name for each in experiments for name in each.parameters))
    differing = [
        name for name in names if len({repr(each.parameters.get(name)) for each in experiments}) > 1
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
    names = varied(experiments)
    ranking = _ranking(experiments, objective, trust)
    ranks = _ranks(ranking)
    means = _mean_scores(trust)
    mean_heading = ["mean of runs"] if means else []
    searched = ["max load"] if objective is Objective.MAXIMIZE_LOAD else []
    rows = [
        [
            number(ranks.get(each.experiment_id)),
            str(each.ordinal),
            each.state.value,
            settings_text(each.parameters, names),
            *[means.get(each.ordinal, UNKNOWN) for _ in mean_heading],
            *[_bracket(each.metrics) for _ in searched],
            *metric_cells(each.metrics),
            attempts_text(each),
            short(each.experiment_id),
        ]
        for each in _ordered(experiments, ranking)
    ]
    headings = [
        *("rank", "#", "state", "parameters", *mean_heading, *searched, "levels", "ttft ms"),
        *("tpot ms", "e2e s"),
        *("e2e p99 s", "output tok/s", "per GPU", "max total tok/s", "max per GPU", "requests"),
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
                (
                    *("rank", "#", *mean_heading, *searched, *_MEASURED_IN.get(objective, ())),
                    *("parameters", "state", "levels", "ttft ms", "tpot ms", "e2e s"),
                    *("output tok/s", "per GPU", "max total tok/s", "max per GPU", "requests"),
                    *("e2e p99 s", "attempts", "id"),
                )
            )
        ),
        shortened=frozenset({"parameters"}),
        whole=frozenset({"parameters"}),
    )


def _mean_scores(trust: TrustVerdict | None) -> dict[int, str]:
    """Return what each configuration ranks by, by the ordinal of its first run: `0.102 (3)`."""
    standings = trust.standings if trust is not None else {}
    return {
        ordinal: f"{standing.mean_score:.4g} ({standing.runs})"
        for ordinal, standing in standings.items()
    }


def _bracket(metrics: BenchmarkMetrics | None) -> str:
    found = metrics.boundary if metrics is not None else None
    return bracket_text(found) if found is not None else UNKNOWN


def boundary_lines(experiments: Sequence[ExperimentView], objective: Objective | None) -> list[str]:
    """What is odd about the load at which experiments no longer meet the constraints."""
    return [
        f"experiment {each.ordinal} {odd}"
        for each in ranked(experiments, objective)
        if each.metrics is not None and each.metrics.boundary is not None
        for odd in odd_about(each.metrics.boundary)
    ]


def metric_cells(metrics: BenchmarkMetrics | None) -> list[str]:
    """Served levels of all, then what was measured in them; latencies to the first and per token
    in milliseconds.
    """
    if metrics is None:
        return [UNKNOWN] * 10
    levels = metrics.total_levels
    return [
        f"{levels - len(metrics.failed_levels)}/{levels}" if levels else UNKNOWN,
        _milliseconds(metrics.mean_ttft),
        _milliseconds(metrics.mean_tpot),
        number(metrics.mean_e2e_latency, 3),
        number(metrics.p99_e2e_latency, 3),
        number(metrics.mean_output_throughput, 1),
        number(metrics.mean_output_throughput_per_gpu, 1),
        number(metrics.max_total_throughput, 1),
        number(metrics.max_total_throughput_per_gpu, 1),
        f"{metrics.total_completed_requests}/{metrics.total_requests}",
    ]


def failed_level_lines(
    experiments: Sequence[ExperimentView],
    objective: Objective | None,
    trust: TrustVerdict | None = None,
) -> list[str]:
    """The loads that measured experiments did not serve, and what follows."""
    ranking = _ranking(experiments, objective, trust)
    ranks = _ranks(ranking)
    lines = []
    for each in _ordered(experiments, ranking):
        metrics = each.metrics
        if metrics is None or not metrics.failed_levels:
            continue
        is_ranked = each.experiment_id in ranks
        why = "did not serve" if is_ranked else "has no rank, as another one served what it did not"
        limit = percent_text(metrics.max_error_rate or 0.0)
        lines.append(
            f"experiment {each.ordinal} {why}: {failed_levels_text(metrics.failed_levels)}"
            f" (at most {limit} of the requests may fail: max_error_rate)"
        )
    return lines


def missed_lines(experiments: Sequence[ExperimentView], objective: Objective | None) -> list[str]:
    """Which of the task's constraints each measured experiment misses, and by how much."""
    return [
        f"experiment {each.ordinal} misses {missed_text(each.slo)}"
        for each in ranked(experiments, objective)
        if excess_of(each.slo)
    ]


def quality_lines(experiments: Sequence[ExperimentView], objective: Objective | None) -> list[str]:
    """How far each that answers well enough answers as the baseline does."""
    return [
        f"experiment {each.ordinal} answers: {quality_text(each.slo.quality)}"
        for each in ranked(experiments, objective)
        if each.slo is not None
        and each.slo.quality is not None
        and not each.slo.quality.excess
        and each.slo.quality.baseline != each.ordinal
    ]


def gpu_result_table(experiments: Sequence[ExperimentView]) -> Table | None:
    """What each experiment's GPUs did while it was measured; None if nothing was sampled."""
    rows = []
    for each in experiments:
        if (seen := each.gpu_monitoring) is None:
            continue
        for index, stats in sorted(seen.gpu_stats.items()):
            rows.append(
                [
                    str(each.ordinal),
                    f"{index} {stats.name}",
                    *gpu_cells(stats),
                    number(seen.coverage_percent),
                    number(seen.energy_wh, 3),
                    "simulated" if seen.simulated else "measured",
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


def untrusted_lines(experiments: Sequence[ExperimentView]) -> list[str]:
    """Whose GPU numbers cover too little of their runs, or are missing, and why."""
    return [
        f"experiment {each.ordinal}: {what}: {seen.untrusted_because}"
        for each in experiments
        if (seen := each.gpu_monitoring) is not None and seen.trusted is False
        for what in ["do not trust its GPU numbers" if seen.gpu_stats else "no GPU numbers"]
    ]


def gpu_cells(stats: GpuStats) -> list[str]:
    """Smallest, mean and largest of each reading, and how many there were."""
    spreads = (stats.memory_used_mb, stats.temperature_c, stats.power_draw_w)
    use = stats.utilization
    return [
        span(use.min, use.mean, use.max),
        *(span(spread.min, spread.mean, spread.max) for spread in spreads),
        str(use.samples),
    ]


def origin_lines(experiment: ExperimentView) -> list[str]:
    """What was known of it before it took a GPU, and whether it ran elsewhere."""
    lines = [
        f"preflight, {each.subject}: {each.message}" + (f"; {each.action}" if each.action else "")
        for each in experiment.preflight
    ]
    if experiment.predicted_score is not None:
        measured = number(experiment.objective_score, 4)
        lines.append(f"its roofline foresaw {experiment.predicted_score:.4g}, measured: {measured}")
    if experiment.imported_at is not None:
        lines.append(f"imported {experiment.imported_at:%Y-%m-%d %H:%M} UTC: measured elsewhere")
    return lines


def failure_lines(experiments: Sequence[ExperimentView], *, log_lines: int) -> list[str]:
    """Why experiments failed, their engines' last words, and once for each cause what to do."""
    by_hint: dict[str, list[ExperimentView]] = {}
    for each in experiments:
        if each.state is ExperimentState.FAILED:
            hint = each.failure.hint if each.failure is not None else ""
            by_hint.setdefault(hint, []).append(each)
    lines = []
    for hint, alike in by_hint.items():
        for each in alike:
            lines.append(_failure_line(each))
            tail = each.failure.log_tail if each.failure is not None else ()
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
    """Both tables, and why experiments failed, with that many of their engines' last lines."""
    if not experiments:
        return
    print_table(result_table(experiments, objective, trust))
    if any(each.engine.engine == SIMULATED_ENGINE for each in experiments):
        click.echo("the engine is simulated: these latencies and rates are made up")
    for line in failed_level_lines(experiments, objective, trust):
        click.echo(line)
    lines = [
        *other_setting_lines(experiments),
        *missed_lines(experiments, objective),
        *quality_lines(experiments, objective),
        *boundary_lines(experiments, objective),
    ]
    for line in lines:
        click.echo(line)
    in_order = ranked(experiments, objective, trust)
    gpu_results = gpu_result_table(in_order)
    if gpu_results is not None:
        click.echo()
        print_table(gpu_results)
    for line in untrusted_lines(in_order):
        click.echo(line)
    for line in failure_lines(experiments, log_lines=log_lines):
        click.echo(line)


def ending_lines(task: TaskView) -> Iterator[str]:
    """Why nothing further is tried, and how far the best can be trusted."""
    if task.stop_reason is not None:
        yield f"stopped: {STOPPED[task.stop_reason]} ({task.stop_reason.value})"
    if task.trust is not None:
        yield trusted_text(task.trust)
        yield from trust_lines(task.trust)


def _milliseconds(seconds: float | None) -> str:
    return number(seconds * 1000 if seconds is not None else None, 1)
