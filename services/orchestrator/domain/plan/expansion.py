"""From a task file to its configurations."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from schemas.base import MAX_INTEGER
from schemas.errors import ErrorCode
from schemas.task.parameters import (
    Categorical,
    Choice,
    Configurations,
    ContinuousRange,
    IntegerRange,
    ParameterValues,
    SomeScalars,
)
from schemas.task.task_file import GpuPreferences, ParallelConfig, QuantConfig, TaskFile
from services.orchestrator.domain.configurations import (
    CONFIGURATIONS,
    MAX_TASK_EXPERIMENTS,
    MAX_VALUES,
    POWER_LIMIT,
    SM_CLOCK,
    Axis,
    Point,
    Row,
    point_of,
)
from shared.errors import MISTAKES, Mistakes, RefusedError
from shared.task_files.configurations import check_configurations, meaning_of

_DTYPES: Final = ("gemm_dtype", "kvcache_dtype", "attention_dtype", "moe_dtype")
_DEGREES: Final = (
    *("tp", "pp", "dp", "cp", "dcp", "ep"),
    *("moe_tp", "moe_ep", "moe_cluster", "moe_dense_tp", "enable_expert_parallel"),
)

Parameters = Mapping[str, ParameterValues]


class Grid(Struct, frozen=True, kw_only=True):
    """The configurations to run, in order; `cut` more were left out by `max_iterations`.

    What is beyond MAX_INTEGER is counted as that: no message carries more.
    """

    points: tuple[Point, ...]
    total: int
    cut: int


def find_axes(task: TaskFile) -> tuple[Axis, ...]:
    """Return what varies: quantization, then parallelism, GPUs, configurations and parameters.

    A search takes ranges as they are, a grid their steps. Raises RefusedError for a bad range, and
    for values that are no grid.
    """
    is_search = task.optimization.strategy.traits.is_search
    make_axis = _search_axis if is_search else _grid_axis
    axes = [
        *_quant_axes(task.quant_config),
        *_parallel_axes(task.parallel_config),
        *_gpu_axes(task.gpus),
        *_configuration_axis(task.configurations, task.parameters),
    ]
    mistakes = Mistakes()
    for name, values in task.parameters.items():
        with mistakes.collect():
            axes.append(make_axis(name, values))
    mistakes.refuse()
    return tuple(axes)


def expand(axes: Sequence[Axis], max_iterations: int | None) -> Grid:
    """Return the configurations of a grid; the last axis varies fastest.

    Raises RefusedError for a grid larger than any task may be.
    """
    total = math.prod(len(axis.values) for axis in axes)
    kept = min(total, max_iterations or total)
    if kept > MAX_TASK_EXPERIMENTS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_TASK_EXPERIMENTS} experiments, the grid has {total}; "
            "set max_iterations or give fewer values",
            path="$.optimization.max_iterations",
        )
    total = min(total, MAX_INTEGER)
    combinations = itertools.product(*(axis.values for axis in axes))
    points = tuple(
        point_of(list(zip(axes, values, strict=True)))
        for values in itertools.islice(combinations, kept)
    )
    return Grid(points=points, total=total, cut=total - kept)


def first_values(rows: Configurations | None, parameters: Parameters) -> dict[str, Any]:
    """Return a value of each of a task's parameters, None where its form has none."""
    by_name = {
        name: None if isinstance(values, IntegerRange | ContinuousRange) else list_values(values)[0]
        for name, values in parameters.items()
    }
    meanings = set(map(meaning_of, by_name))
    beside = {
        name: value
        for row in (rows or ())[:1]
        for name, value in row.items()
        if meaning_of(name) not in meanings
    }
    return beside | by_name


class RowPlaces:
    """Where in a task's `configurations` stands what a refusal of a parameter is about."""

    def __init__(self, rows: Configurations | None, parameters: Parameters) -> None:
        self._rows = rows or ()
        names = self._rows[0] if self._rows else ()
        self._names = [name for name in names if name not in parameters]
        self._told: dict[tuple[str, str], str] = {}  # what all rows have is told of the first

    @contextmanager
    def name_rows(self, point: Point) -> Iterator[None]:
        """Have a refusal of the configuration name the row that gives what it is about."""
        try:
            yield
        except RefusedError as error:
            mistakes = [
                {**mistake, "path": self._place(point, mistake["path"], mistake["message"])}
                for mistake in error.details.get(MISTAKES, ())
            ]
            raise RefusedError(
                error.code,
                error.message,
                path=self._place(point, error.path, error.message),
                details={**error.details, MISTAKES: mistakes} if mistakes else error.details,
            ) from None

    def _place(self, point: Point, path: str | None, message: str) -> str | None:
        for name in self._names if path is not None else ():
            if f"{path}.".startswith(f"$.parameters.{name}."):
                items = point.parameters.items()
                rows = enumerate(self._rows)
                number = next((n for n, row in rows if row.items() <= items), 0)
                below = (path or "").removeprefix("$.parameters.")
                return self._told.setdefault(
                    (below, message), f"$.configurations[{number}].{below}"
                )
        return path


def _search_axis(name: str, values: ParameterValues) -> Axis:
    if not isinstance(values, IntegerRange | ContinuousRange):
        is_categorical = isinstance(values, Categorical)
        return Axis(
            block="parameters", name=name, values=list_values(values), is_categorical=is_categorical
        )
    path = f"$.parameters.{name}"
    _refuse_empty(values, path)
    if isinstance(values, ContinuousRange) and values.log and values.low <= 0:
        message = f"expected more than 0 where log is true, got {values.low:g}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.low")
    return Axis(block="parameters", name=name, span=values)


def _quant_axes(config: QuantConfig | None) -> Iterator[Axis]:
    if config is None:
        return
    yield from _preset_axis("quant_config", config.preset, config.presets)
    for name in _DTYPES:
        values = getattr(config, name)
        if values is not None:
            yield Axis(block="quant_config", name=name, values=_several(values))


def _parallel_axes(config: ParallelConfig | None) -> Iterator[Axis]:
    if config is None:
        return
    yield from _preset_axis("parallel_config", config.preset, config.presets)
    for name in _DEGREES:
        values = getattr(config, name)
        if values is True or values not in (1, False):
            yield Axis(block="parallel_config", name=name, values=_several(values))


def _gpu_axes(gpus: GpuPreferences | None) -> Iterator[Axis]:
    for name in (POWER_LIMIT, SM_CLOCK):
        if (values := getattr(gpus, name, None)) is not None:
            yield Axis(block="gpus", name=name, values=_several(values))


def _configuration_axis(rows: Configurations | None, parameters: Parameters) -> Iterator[Axis]:
    """Yield each row in the order of the first one's parameters, in the first one's spelling."""
    if rows is None:
        return
    check_configurations(rows, parameters)
    names = {meaning_of(name): name for name in rows[0]}
    by_meaning = [{meaning_of(name): value for name, value in row.items()} for row in rows]
    values: tuple[Row, ...] = tuple(
        tuple((name, row[meaning]) for meaning, name in names.items()) for row in by_meaning
    )
    yield Axis(block=CONFIGURATIONS, name=CONFIGURATIONS, values=values, is_categorical=True)


def _preset_axis(block: str, preset: str | None, presets: tuple[str, ...]) -> Iterator[Axis]:
    names = tuple(dict.fromkeys((*((preset,) if preset else ()), *presets)))
    if names:
        yield Axis(block=block, name="preset", values=names)


def _grid_axis(name: str, values: ParameterValues) -> Axis:
    return Axis(block="parameters", name=name, values=values_of(name, values))


def values_of(name: str, values: ParameterValues) -> tuple[Any, ...]:
    """Return a parameter's values, whichever form they are written in.

    Raises RefusedError for a range that is not in steps.
    """
    if not isinstance(values, IntegerRange | ContinuousRange):
        return list_values(values)
    path = f"$.parameters.{name}"
    _refuse_empty(values, path)
    if isinstance(values, ContinuousRange):
        message = (
            "a grid cannot try every number of a continuous range: give a list of values, or take "
            "strategy 'random' or 'bayesian'"
        )
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
    if values.step is None:
        message = "a grid takes an integer range in steps: give its step, or a list of values"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
    steps = range(values.low, values.high + 1, values.step)
    if len(steps) > MAX_VALUES:
        message = f"expected at most {MAX_VALUES} values of a parameter, got {len(steps)}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.step")
    return tuple(steps)


def list_values(values: SomeScalars | Choice | Categorical) -> tuple[Any, ...]:
    """Return a list of values in whichever form it is written."""
    return values if isinstance(values, tuple) else values.values


def _refuse_empty(values: IntegerRange | ContinuousRange, path: str) -> None:
    if values.high < values.low:
        message = f"expected at least {values.low:g}, its low, got {values.high:g}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.high")


def _several(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)
