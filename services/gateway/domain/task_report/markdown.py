"""A task's report as Markdown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from schemas.task.benchmark import LoadBoundary
from schemas.task.report import Deployments, FrontPoint, ParetoPoint, ReportedExperiment, TaskReport
from schemas.task.stop_words import STOPPED
from schemas.task.trust import TrustVerdict
from shared.benchmarks.levels.bracket import bracket_text, load_unit, odd_about
from shared.benchmarks.quality.agreement import quality_text
from shared.benchmarks.verdicts.ranking import compute_error_percent
from shared.benchmarks.verdicts.trust import trust_lines
from shared.datasets.texts import dataset_text
from shared.traces.texts import trace_text

UNKNOWN: Final = "-"
MAX_OTHERS: Final = 20
_UNITS: Final = {
    "mean_e2e_latency": "s",
    "mean_ttft": "s",
    "mean_tpot": "s",
    "max_total_throughput_per_gpu": "tokens/s",
    "max_goodput_per_gpu": "requests/s",
    "tokens_per_joule": "tokens/J",
    "cost_per_million_tokens": "per million output tokens",
}


def markdown(report: TaskReport) -> str:
    """Sections without anything to say are left out."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: TaskReport) -> Iterator[str]:
    yield f"# {_text(report.task_name)}"
    yield ""
    yield f"{report.verdict[:1].upper()}{report.verdict[1:]}, by {report.objective.value}."
    yield f"{report.succeeded} of {report.experiments} experiments were measured"
    yield f"(task {report.task_id}, {report.state.value})."
    if report.stop_reason is not None:
        yield f"It stopped: {STOPPED[report.stop_reason]}."
    if report.simulated:
        yield "The engine is simulated: these figures are made up."
    for use in report.datasets:
        text = dataset_text(use)
        yield f"{text[:1].upper()}{text[1:]}."
    for trace in report.traces:
        text = trace_text(trace)
        yield f"{text[:1].upper()}{text[1:]}."
    for name, count in (("dataset", len(report.datasets)), ("trace", len(report.traces))):
        if count > 1:
            yield f"The {name} changed while the task ran: compare only experiments of one SHA-256."
    for service in report.missing:
        yield f"The part of {service} is not here: it did not answer."
    yield ""
    yield from _best(report)
    yield from _engines(report)
    yield from _trust(report.trust)
    yield from _importance(report)
    yield from _front(report.front)
    yield from _pareto(report.pareto)
    yield from _others(report)
    yield from _not_tried(report)
    yield from _cost(report)
    yield from _notes("Notes", report.notes)
    yield from _deployments(report.deployments)


def _best(report: TaskReport) -> Iterator[str]:
    best, baseline = report.best, report.baseline
    if best is None:
        return
    yield "## Best configuration"
    yield ""
    unit = _UNITS.get(report.measure, "")
    yield f"Experiment {best.ordinal}, {report.measure} {_number(best.score)} {unit}".rstrip()
    if best.boundary is not None:
        yield _boundary_text(best.boundary)
        yield ""
    if best.predicted_score is not None:
        off = ""
        if best.score is not None:
            off = f", off by {compute_error_percent(best.predicted_score, best.score):.0f} %"
        yield f"The prior predicted {_number(best.predicted_score)} {unit}".rstrip() + f"{off}."
    if best.quality is not None and best.quality.baseline != best.ordinal:
        yield f"Its answers: {quality_text(best.quality)}."
        yield ""
    if baseline is None or baseline.ordinal == best.ordinal:
        if baseline is not None:
            yield "It is the baseline, the task's first configuration."
        yield ""
        yield from _table(["parameter", "value"], _pairs(best.parameters))
        return
    behind = baseline.because
    if baseline.worse_percent is not None:
        behind = f"{_number(baseline.worse_percent)} % worse"
    score = f"{_number(baseline.score)} {unit}".rstrip()
    yield f"The baseline, experiment {baseline.ordinal}, has {score}: {behind}."
    yield ""
    rows = [
        [change.name, _value(change.baseline), _value(change.best)] for change in report.changes
    ]
    yield from _table(["changed", "baseline", "best"], rows)


def _engines(report: TaskReport) -> Iterator[str]:
    if not report.engines:
        return
    yield "## Engines"
    yield ""
    rows = [
        [
            engine.title,
            f"{engine.measured} of {engine.experiments}",
            UNKNOWN if engine.best is None else str(engine.best),
            _number(engine.score),
            engine.remark if engine.worse_percent is None else f"{_number(engine.worse_percent)} %",
        ]
        for engine in report.engines
    ]
    yield from _table(["engine", "measured", "best", "score", "worse by"], rows)


def _boundary_text(boundary: LoadBoundary) -> str:
    unit = load_unit(boundary.load)
    odd = "".join(f"; it {remark}" for remark in odd_about(boundary))
    return (
        f"The greatest load that meets the constraints: {bracket_text(boundary)} {unit},"
        f" found in {boundary.levels} levels{odd}."
    )


def _trust(trust: TrustVerdict | None) -> Iterator[str]:
    if trust is None:
        return
    yield from _notes("How far it can be trusted", tuple(trust_lines(trust)))
    if trust.repeated:
        rows = [
            [
                str(configuration.ordinal),
                str(configuration.runs),
                _number(configuration.mean_score),
                f"{_number(configuration.spread_percent)} %",
                f"{_number(configuration.behind_percent)} %",
            ]
            for configuration in trust.repeated
        ]
        yield from _table(["#", "runs", "mean score", "spread", "behind the winner"], rows)


def _importance(report: TaskReport) -> Iterator[str]:
    if not report.importance:
        return
    yield "## What made the difference"
    yield ""
    yield (
        "Share of the scores' variance between a parameter's values, together 100 %; mean score of"
        " each value."
    )
    yield ""
    rows = [
        [
            parameter.name,
            UNKNOWN if parameter.share is None else f"{100 * parameter.share:.0f} %",
            ", ".join(
                f"{v.value}: {_number(v.mean_score)} ({v.experiments})" for v in parameter.values
            ),
        ]
        for parameter in report.importance
    ]
    yield from _table(["parameter", "share", "mean score (experiments)"], rows)


def _pareto(front: Sequence[ParetoPoint]) -> Iterator[str]:
    if len(front) < 2:
        return
    yield "## Latency against throughput"
    yield ""
    yield "No other is faster and serves more than one of these."
    yield ""
    rows = [
        [str(point.ordinal), _number(point.mean_e2e_latency), _number(point.throughput_per_gpu)]
        for point in front
    ]
    yield from _table(["#", "mean e2e latency, s", "tokens/s per GPU"], rows)


def _front(points: Sequence[FrontPoint]) -> Iterator[str]:
    if not points:
        return
    yield "## Between the objectives"
    yield ""
    yield "No other is as good as one of these in every objective, and better in one."
    yield ""
    names = list(dict.fromkeys(name for point in points for name in point.measures))
    rows = [
        [
            str(point.ordinal),
            _parameters_text(point.parameters),
            *(_number(point.measures.get(name)) for name in names),
        ]
        for point in points
    ]
    headings = [f"{name}, {_UNITS[name]}" if name in _UNITS else name for name in names]
    yield from _table(["#", "parameters", *headings], rows)


def _others(report: TaskReport) -> Iterator[str]:
    if not report.others:
        return
    yield "## The others"
    yield ""
    experiments = report.others[:MAX_OTHERS]
    is_searched = any(experiment.boundary is not None for experiment in experiments)
    rows = [_other(experiment, is_searched=is_searched) for experiment in experiments]
    headings = ["#", "parameters", "greatest load" if is_searched else "score", "worse by"]
    if any(experiment.predicted_score is not None for experiment in experiments):
        headings[3:3] = ["predicted", "off by"]
        for row, experiment in zip(rows, experiments, strict=True):
            row[3:3] = [_number(experiment.predicted_score), _error(experiment)]
    yield from _table(headings, rows)
    if len(report.others) > MAX_OTHERS:
        yield f"{len(report.others) - MAX_OTHERS} more are left out here."
        yield ""


def _error(experiment: ReportedExperiment) -> str:
    predicted, measured = experiment.predicted_score, experiment.score
    if predicted is None or measured is None:
        return _number(None)
    return f"{compute_error_percent(predicted, measured):.0f} %"


def _other(experiment: ReportedExperiment, *, is_searched: bool) -> list[str]:
    behind = experiment.because
    if experiment.worse_percent is not None:
        behind = f"{_number(experiment.worse_percent)} %"
    boundary, score = experiment.boundary, _number(experiment.score)
    if is_searched:
        score = bracket_text(boundary) if boundary is not None else UNKNOWN
    return [
        str(experiment.ordinal),
        _parameters_text(experiment.parameters),
        score,
        behind,
    ]


def _not_tried(report: TaskReport) -> Iterator[str]:
    if not report.not_tried:
        return
    yield "## Not measured"
    yield ""
    rows = [
        [str(group.count), ", ".join(map(str, group.ordinals)) or UNKNOWN, group.reason]
        for group in report.not_tried
    ]
    yield from _table(["configurations", "experiments", "why"], rows)


def _cost(report: TaskReport) -> Iterator[str]:
    cost = report.cost
    if cost is None:
        return
    yield "## Cost of the search"
    yield ""
    money = "" if cost.cost is None else f", {cost.cost:.2f} {cost.currency}"
    yield (
        f"{_number(cost.gpu_seconds)} GPU-seconds{money} in {cost.attempts} attempts; "
        f"{_number(cost.measuring_gpu_seconds)} of them measured load."
    )
    if cost.max_cost is not None:
        yield f"The task may cost {cost.max_cost:g} {cost.currency}."
    if cost.max_gpu_hours is not None:
        yield f"The task may take {cost.max_gpu_hours:g} GPU-hours."
    yield ""


def _notes(title: str, notes: Sequence[str]) -> Iterator[str]:
    if not notes:
        return
    yield f"## {title}"
    yield ""
    yield from (f"- {_text(note)}" for note in notes)
    yield ""


def _deployments(forms: Deployments) -> Iterator[str]:
    yield from _notes("To use it", forms.notes)
    for title, language, text in (
        ("Command line", "sh", forms.command_line),
        ("Compose", "yaml", forms.compose),
        ("InferenceService (OME)", "yaml", forms.inference_service),
        ("Deployment", "yaml", forms.deployment),
    ):
        if not text:
            continue
        fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
        yield f"### {title}"
        yield ""
        yield f"{fence}{language}"
        yield text.rstrip("\n")
        yield fence
        yield ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"
    yield ""


def _parameters_text(parameters: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in parameters.items())


def _pairs(parameters: Mapping[str, Any]) -> list[list[str]]:
    return [[name, _value(value)] for name, value in parameters.items()]


def _value(value: Any) -> str:
    match value:
        case None:
            return UNKNOWN
        case bool():
            return str(value).lower()
    return str(value)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def _text(text: str) -> str:
    """Return the text in one line, without anything that ends a table's cell or opens HTML."""
    line = " ".join(text.split())
    return line.replace("|", "\\|").replace("<", "&lt;")
