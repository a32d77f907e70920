"""Experiments of any tasks side by side: what differs, and what results may differ by."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import json

from schemas.gateway.comparison import (
    ComparedExperiment,
    ComparedRow,
    ExperimentComparison,
    RowKind,
)
from schemas.gateway.views import ExperimentDetail
from schemas.orchestrator.views import TaskView
from schemas.task.benchmark import BenchmarkMetrics
from shared.benchmarks.levels.level_text import benchmark_text
from shared.benchmarks.verdicts.constraints import find_missed

Pair = tuple[ExperimentDetail, TaskView]
Text = Callable[[ExperimentDetail, TaskView], str | None]

# Where one of these differs, the parameters alone do not explain a result.
CIRCUMSTANCES: Final = (
    RowKind.MODEL,
    RowKind.ENGINE,
    RowKind.VERSION,
    RowKind.HARDWARE,
    RowKind.LOAD,
)
# Name, unit, measure, and whether more of it is better.
RESULTS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("total throughput per GPU, max", "tok/s", "max_total_throughput_per_gpu", True),
    ("output throughput per GPU, mean", "tok/s", "mean_output_throughput_per_gpu", True),
    ("items per second per GPU, max", "items/s", "max_items_per_second_per_gpu", True),
    ("goodput per GPU, max", "req/s", "max_goodput_per_gpu", True),
    ("load within the constraints, max", "", "max_load", True),
    ("time to first token, mean", "s", "mean_ttft", False),
    ("time per output token, mean", "s", "mean_tpot", False),
    ("end-to-end latency, mean", "s", "mean_e2e_latency", False),
    ("end-to-end latency, p99", "s", "p99_e2e_latency", False),
    ("served requests", "share", "success_rate", True),
    ("tokens per joule", "tok/J", "tokens_per_joule", True),
    ("cost of a million output tokens", "", "cost_per_million_tokens", False),
)


def compare(pairs: Sequence[Pair]) -> ExperimentComparison:
    """Compare experiments, each given with its task. Rows that none has are left out."""
    rows = [
        *(_text_row(kind, name, text, pairs) for kind, name, text in _CIRCUMSTANCES),
        *_parameter_rows(pairs),
        *(_result_row(*result, pairs) for result in RESULTS),
        *(_text_row(RowKind.TRUST, name, text, pairs) for name, text in _TRUST),
    ]
    rows = [row for row in rows if any(text is not None for text in row.texts)]
    return ExperimentComparison(
        experiments=tuple(_column(*pair) for pair in pairs),
        rows=tuple(rows),
        cautions=tuple(
            f"{row.name} differs: results may differ by it"
            for row in rows
            if row.differs and row.kind in CIRCUMSTANCES
        ),
    )


def _column(experiment: ExperimentDetail, task: TaskView) -> ComparedExperiment:
    return ComparedExperiment(
        experiment_id=experiment.experiment_id,
        task_id=experiment.task_id,
        task_name=experiment.task_name or task.task_name,
        namespace=experiment.namespace,
        ordinal=experiment.ordinal,
        state=experiment.state,
        objective=task.objective,
        measured_at=experiment.finished_at,
    )


def _text_row(kind: RowKind, name: str, text: Text, pairs: Sequence[Pair]) -> ComparedRow:
    texts = tuple(text(experiment, task) or None for experiment, task in pairs)
    return ComparedRow(kind=kind, name=name, texts=texts, differs=len(set(texts)) > 1)


def _parameter_rows(pairs: Sequence[Pair]) -> list[ComparedRow]:
    names = dict.fromkeys(name for experiment, _ in pairs for name in _flags(experiment))

    def row(name: str) -> ComparedRow:
        return _text_row(
            RowKind.PARAMETER,
            name,
            lambda experiment, _: (
                _value(_flags(experiment)[name]) if name in _flags(experiment) else None
            ),
            pairs,
        )

    return [row(name) for name in names]


def _result_row(
    name: str, unit: str, measure: str, is_more_better: bool, pairs: Sequence[Pair]
) -> ComparedRow:
    values = tuple(_measure_of(experiment.metrics, measure) for experiment, _ in pairs)
    numbers = [value for value in values if value is not None]
    best_value = (max if is_more_better else min)(numbers, default=None)
    places = [place for place, value in enumerate(values) if value == best_value]
    return ComparedRow(
        kind=RowKind.RESULT,
        name=name,
        unit=unit,
        texts=tuple(None if value is None else f"{value:.4g}" for value in values),
        values=values,
        differs=len(set(values)) > 1,
        best=places[0] if len(places) == 1 and len(numbers) > 1 else None,
    )


def _measure_of(metrics: BenchmarkMetrics | None, measure: str) -> float | None:
    value = getattr(metrics, measure) if metrics is not None else None
    return None if value is None else float(value)


def _flags(experiment: ExperimentDetail) -> dict[str, Any]:
    return experiment.engine.parameters or experiment.parameters


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.encode(value).decode()


def _join(values: Sequence[object], unit: str = "") -> str:
    return ", ".join(f"{value}{unit}" for value in values)


def _gpu_models(experiment: ExperimentDetail) -> str:
    info = experiment.gpu_info
    return _join(experiment.run.setting.gpu_models) or (info.model if info is not None else "")


def _gpu_count(experiment: ExperimentDetail) -> str:
    info = experiment.gpu_info
    return str(info.count if info is not None else experiment.request.gpus)


def _tool(experiment: ExperimentDetail) -> str | None:
    result = experiment.benchmark
    return f"{result.tool} {result.tool_version}" if result is not None else None


def _load(task: TaskView) -> str | None:
    return benchmark_text(task.task.benchmark) if task.task is not None else None


def _constraints(task: TaskView) -> str | None:
    return task.task.optimization.constraints if task.task is not None else None


def _misses(experiment: ExperimentDetail) -> str | None:
    return _join([check.constraint for check in find_missed(experiment.slo)])


def _doubts(experiment: ExperimentDetail) -> str:
    causes, monitoring = [*experiment.run.doubts], experiment.gpu_monitoring
    if monitoring is not None and monitoring.trusted is False:
        causes.append(monitoring.untrusted_because)
    return "; ".join(causes)


def _standing(experiment: ExperimentDetail, task: TaskView) -> str | None:
    trust, configuration = task.trust, experiment.run.repeats or experiment.ordinal
    if trust is None:
        return None
    [runs, *_] = [
        *(standing.runs for standing in trust.repeated if standing.ordinal == configuration),
        1,
    ]
    times = "measured once" if runs == 1 else f"measured {runs} times"
    return f"{times}, the winner of its task" if trust.winner == configuration else times


_CIRCUMSTANCES: Final[tuple[tuple[RowKind, str, Text], ...]] = (
    (RowKind.MODEL, "model", lambda experiment, _: experiment.engine.model),
    (RowKind.ENGINE, "engine", lambda experiment, _: experiment.engine.engine),
    (RowKind.VERSION, "image", lambda experiment, _: experiment.engine.image_tag),
    (RowKind.VERSION, "image digest", lambda experiment, _: experiment.image_digest),
    (
        RowKind.VERSION,
        "driver",
        lambda experiment, _: _join(experiment.run.setting.driver_versions),
    ),
    (RowKind.HARDWARE, "GPU model", lambda experiment, _: _gpu_models(experiment)),
    (RowKind.HARDWARE, "GPUs", lambda experiment, _: _gpu_count(experiment)),
    (
        RowKind.HARDWARE,
        "memory of a GPU",
        lambda experiment, _: _join(experiment.run.setting.memory_total_mb, " MiB"),
    ),
    (
        RowKind.HARDWARE,
        "MIG profile",
        lambda experiment, _: _join(experiment.run.setting.mig_profiles),
    ),
    (
        RowKind.HARDWARE,
        "power limit",
        lambda experiment, _: _join(experiment.run.setting.power_limits_w, " W"),
    ),
    (RowKind.LOAD, "load", lambda _, task: _load(task)),
    (RowKind.LOAD, "constraints", lambda _, task: _constraints(task)),
    (RowKind.LOAD, "load generator", lambda experiment, _: _tool(experiment)),
)
_TRUST: Final[tuple[tuple[str, Text], ...]] = (
    ("runs", _standing),
    ("misses constraints", lambda experiment, _: _misses(experiment)),
    ("why it may be off", lambda experiment, _: _doubts(experiment)),
)
