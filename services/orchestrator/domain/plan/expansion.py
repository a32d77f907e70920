"""From a task file to its configurations."""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from schemas.base import LARGEST_INTEGER
from schemas.errors import ErrorCode
from schemas.task.parameters import (
    Categorical,
    Choice,
    ContinuousRange,
    IntegerRange,
    ParameterValues,
    Scalar,
    SomeScalars,
)
from schemas.task.task_file import GpuPreferences, ParallelConfig, QuantConfig, TaskFile
from shared.errors import MISTAKES, RefusedError
from shared.task_files.configurations import check_configurations, meaning_of

LARGEST_TASK: Final = 5000
_DTYPES: Final = ("gemm_dtype", "kvcache_dtype", "attention_dtype", "moe_dtype")
_DEGREES: Final = (
    *("tp", "pp", "dp", "cp", "dcp", "ep"),
    *("moe_tp", "moe_ep", "moe_cluster", "moe_dense_tp", "enable_expert_parallel"),
)
MOST_VALUES: Final = 1000
POWER_LIMIT: Final = "power_limit_w"
SM_CLOCK: Final = "sm_clock_mhz"
CONFIGURATIONS: Final = "configurations"

# One of a task's `configurations`: parameters that go together, with their values.
Row = tuple[tuple[str, Scalar], ...]


class Axis(Struct, frozen=True, kw_only=True):
    """One thing that varies. `block` is the part of the task file that names it.

    A search also takes a `span` in place of values. `is_categorical`: values without an order.
    Those of the block `configurations` are rows.
    """

    block: str
    name: str
    values: tuple[Any, ...] = ()
    span: IntegerRange | ContinuousRange | None = None
    is_categorical: bool = False

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """Return the values by the name of what they are of: of rows one for each parameter."""
        if self.block != CONFIGURATIONS:
            return {self.name: self.values}
        names = [name for name, _ in self.values[0]]
        return {
            name: tuple(row[place][1] for row in self.values) for place, name in enumerate(names)
        }


class Point(Struct, frozen=True, kw_only=True):
    """One configuration: a value on every axis."""

    quant: dict[str, Any]
    parallel: dict[str, Any]
    parameters: dict[str, Any]
    gpus: dict[str, Any] = {}

    def shown(self) -> dict[str, Any]:
        """The values by name, those of typed blocks under their block's name."""
        return {
            **{f"quant_config.{name}": value for name, value in self.quant.items()},
            **{f"parallel_config.{name}": value for name, value in self.parallel.items()},
            **{f"gpus.{name}": value for name, value in self.gpus.items()},
            **self.parameters,
        }


class Grid(Struct, frozen=True, kw_only=True):
    """The configurations to run, in order; `cut` more were left out by `max_iterations`.

    What is beyond LARGEST_INTEGER is counted as that: no message carries more.
    """

    points: tuple[Point, ...]
    total: int
    cut: int


def expand(task: TaskFile) -> Grid:
    """Quantization, then parallelism, GPUs, configurations and parameters; the last key varies
    fastest.

    Raises RefusedError for a grid larger than any task may be, and for values that are no grid.
    """
    axes = (*_block_axes(task), *_parameter_axes(task))
    total = math.prod(len(axis.values) for axis in axes)
    kept = min(total, task.optimization.max_iterations or total)
    if kept > LARGEST_TASK:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_TASK} experiments, the grid has {total}; "
            "set max_iterations or give fewer values",
            path="$.optimization.max_iterations",
        )
    total = min(total, LARGEST_INTEGER)
    combinations = itertools.product(*(axis.values for axis in axes))
    points = tuple(
        point_of(list(zip(axes, values, strict=True)))
        for values in itertools.islice(combinations, kept)
    )
    return Grid(points=points, total=total, cut=total - kept)


def search_axes(task: TaskFile) -> tuple[Axis, ...]:
    """The axes of a search, which takes ranges as they are. Raises RefusedError for a bad range."""
    return (
        *_block_axes(task),
        *(_search_axis(name, values) for name, values in task.parameters.items()),
    )


def first_values(task: TaskFile) -> dict[str, Any]:
    """Return a value of each of the task's parameters, None where its form has none."""
    own = {
        name: None if isinstance(values, IntegerRange | ContinuousRange) else listed(values)[0]
        for name, values in task.parameters.items()
    }
    meanings = set(map(meaning_of, own))
    rows = task.configurations or ()
    beside = {
        name: value
        for row in rows[:1]
        for name, value in row.items()
        if meaning_of(name) not in meanings
    }
    return beside | own


class RowPlaces:
    """Where in a task's `configurations` stands what a refusal of a parameter is about."""

    def __init__(self, task: TaskFile) -> None:
        self._rows = task.configurations or ()
        names = self._rows[0] if self._rows else ()
        self._names = [name for name in names if name not in task.parameters]
        self._told: dict[tuple[str, str], str] = {}  # what all rows have is told of the first

    @contextmanager
    def told(self, point: Point) -> Iterator[None]:
        """Have a refusal of the configuration name the row that gives what it is about."""
        try:
            yield
        except RefusedError as error:
            mistakes = [
                {**each, "path": self._place(point, each["path"], each["message"])}
                for each in error.details.get(MISTAKES, ())
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
                given = point.parameters.items()
                rows = enumerate(self._rows)
                number = next((n for n, row in rows if row.items() <= given), 0)
                below = (path or "").removeprefix("$.parameters.")
                return self._told.setdefault(
                    (below, message), f"$.configurations[{number}].{below}"
                )
        return path


def point_of(chosen: Sequence[tuple[Axis, Any]]) -> Point:
    """The configuration with these values."""
    blocks: dict[str, dict[str, Any]] = {
        "quant_config": {},
        "parallel_config": {},
        "gpus": {},
        "parameters": {},
    }
    for axis, value in chosen:
        if axis.block == CONFIGURATIONS:
            blocks["parameters"].update(value)
        else:
            blocks[axis.block][axis.name] = value
    return Point(
        quant=blocks["quant_config"],
        parallel=blocks["parallel_config"],
        gpus=blocks["gpus"],
        parameters=blocks["parameters"],
    )


def _block_axes(task: TaskFile) -> tuple[Axis, ...]:
    return (
        *_quant_axes(task.quant_config),
        *_parallel_axes(task.parallel_config),
        *_gpu_axes(task.gpus),
        *_configuration_axis(task),
    )


def _search_axis(name: str, values: ParameterValues) -> Axis:
    if not isinstance(values, IntegerRange | ContinuousRange):
        is_categorical = isinstance(values, Categorical)
        return Axis(
            block="parameters", name=name, values=listed(values), is_categorical=is_categorical
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


def _gpu_axes(wanted: GpuPreferences | None) -> Iterator[Axis]:
    for name in (POWER_LIMIT, SM_CLOCK):
        if (values := getattr(wanted, name, None)) is not None:
            yield Axis(block="gpus", name=name, values=_several(values))


def _configuration_axis(task: TaskFile) -> Iterator[Axis]:
    """Each row in the order of the first one's parameters, in the first one's spelling."""
    if task.configurations is None:
        return
    check_configurations(task.configurations, task.parameters)
    names = {meaning_of(name): name for name in task.configurations[0]}
    by_meaning = [
        {meaning_of(name): value for name, value in row.items()} for row in task.configurations
    ]
    rows: tuple[Row, ...] = tuple(
        tuple((name, row[meaning]) for meaning, name in names.items()) for row in by_meaning
    )
    yield Axis(block=CONFIGURATIONS, name=CONFIGURATIONS, values=rows, is_categorical=True)


def _preset_axis(block: str, preset: str | None, presets: tuple[str, ...]) -> Iterator[Axis]:
    names = tuple(dict.fromkeys((*((preset,) if preset else ()), *presets)))
    if names:
        yield Axis(block=block, name="preset", values=names)


def _parameter_axes(task: TaskFile) -> Iterator[Axis]:
    for name, values in task.parameters.items():
        yield Axis(block="parameters", name=name, values=values_of(name, values))


def values_of(name: str, values: ParameterValues) -> tuple[Any, ...]:
    """A parameter's values, whichever form they are written in.

    Raises RefusedError for a range that is not in steps.
    """
    if not isinstance(values, IntegerRange | ContinuousRange):
        return listed(values)
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
    if len(steps) > MOST_VALUES:
        message = f"expected at most {MOST_VALUES} values of a parameter, got {len(steps)}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.step")
    return tuple(steps)


def listed(values: SomeScalars | Choice | Categorical) -> tuple[Any, ...]:
    """Return a list of values in whichever form it is written."""
    return values if isinstance(values, tuple) else values.values


def _refuse_empty(values: IntegerRange | ContinuousRange, path: str) -> None:
    if values.high < values.low:
        message = f"expected at least {values.low:g}, its low, got {values.high:g}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.high")


def _several(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)
