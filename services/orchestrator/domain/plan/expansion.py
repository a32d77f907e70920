"""From a task file to its configurations."""

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import MAX_INTEGER
from schemas.errors import ErrorCode
from schemas.task.endpoint import EndpointConfig
from schemas.task.parameters import (
    Categorical,
    Choice,
    Configurations,
    ContinuousRange,
    IntegerRange,
    ParameterValues,
    SomeScalars,
    Variables,
)
from schemas.task.task_file import (
    GpuPreferences,
    ParallelConfig,
    QuantConfig,
    TaskEngine,
    TaskFile,
)
from services.orchestrator.domain.configurations import (
    CONFIGURATIONS,
    ENGINE,
    ENV,
    MAX_TASK_EXPERIMENTS,
    MAX_VALUES,
    POWER_LIMIT,
    SM_CLOCK,
    URL,
    Axis,
    Point,
    Row,
    point_of,
)
from shared.engines.variants import IMAGE_TAG, Variant
from shared.errors import Mistakes, RefusedError, rename_paths
from shared.task_files.configurations import check_configurations, meaning_of
from shared.task_files.engines import check_engines

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
    """Return what varies: engines, then quantization, parallelism, GPUs, configurations and
    parameters; what varies of one engine alone comes last.

    A search takes ranges as they are, a grid their steps. Raises RefusedError for a bad range, and
    for values that are no grid.
    """
    check_engines(task)
    is_search = task.optimization.strategy.traits.is_search
    make_axis = _search_axis if is_search else _grid_axis
    mistakes = Mistakes()
    axes = [
        *_engine_axes(task),
        *_env_axes(task.env),
        *_quant_axes(task.quant_config),
        *_parallel_axes(task.parallel_config),
        *_gpu_axes(task.gpus),
        *_endpoint_axis(task.endpoint),
        *_configuration_axis(task.configurations, task.parameters),
    ]
    for name, values in task.parameters.items():
        with mistakes.collect():
            axes.append(make_axis(name, values))
    for place, engine in enumerate(task.engines):
        own_axes = list(_env_axes(engine.env))
        with mistakes.collect(), rename_paths(partial(_path_in_engine, place)):
            own_axes += _configuration_axis(engine.configurations, engine.parameters)
        for name, values in engine.parameters.items():
            with mistakes.collect(), rename_paths(partial(_path_in_engine, place)):
                own_axes.append(make_axis(name, values))
        axes += [replace(axis, engine=place) for axis in own_axes]
    mistakes.refuse()
    return tuple(axes)


def expand(
    axes: Sequence[Axis], max_iterations: int | None, left_out: Container[Variant] = ()
) -> Grid:
    """Return the configurations of a grid; the last axis varies fastest, and engines take turns, so
    that a grid that is cut has some of each but those `left_out`.

    Raises RefusedError for a grid larger than any task may be.
    """
    grids = [grid for grid in _grids_of_engines(axes) if _variant_of_grid(grid) not in left_out]
    total = sum(math.prod(len(axis.values) for axis in own_axes) for own_axes in grids)
    kept = min(total, max_iterations or total)
    if kept > MAX_TASK_EXPERIMENTS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {MAX_TASK_EXPERIMENTS} experiments, the grid has {total}; "
            "set max_iterations or give fewer values",
            path="$.optimization.max_iterations",
        )
    total = min(total, MAX_INTEGER)
    turns = itertools.zip_longest(*map(_points_of, grids))
    points = tuple(
        itertools.islice((point for turn in turns for point in turn if point is not None), kept)
    )
    return Grid(points=points, total=total, cut=total - kept)


def _grids_of_engines(axes: Sequence[Axis]) -> Iterator[list[Axis]]:
    """Yield the axes of each version of each engine, which is alone on the axis of engines."""
    engines = next((axis for axis in axes if axis.is_of_engines), None)
    if engines is None:
        yield list(axes)
        return
    for place, row in enumerate(engines.values):
        own_axes = [
            replace(axis, values=(row,)) if axis is engines else axis
            for axis in axes
            if axis.engine in {None, place}
        ]
        tags = next((axis for axis in own_axes if axis.is_of_tags), None)
        for tag in tags.values if tags is not None else (None,):
            yield [replace(axis, values=(tag,)) if axis is tags else axis for axis in own_axes]


def _variant_of_grid(axes: Sequence[Axis]) -> Variant:
    """Return the version of an engine that all configurations of a grid are of."""
    return point_of([(axis, axis.values[0]) for axis in axes if axis.block == ENGINE]).variant


def _points_of(axes: Sequence[Axis]) -> Iterator[Point]:
    for values in itertools.product(*(axis.values for axis in axes)):
        yield point_of(list(zip(axes, values, strict=True)))


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
        with rename_paths(lambda path, message: self._place(point, path, message)):
            yield

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


def _engine_axes(task: TaskFile) -> Iterator[Axis]:
    """Yield the axis of engines, and of each its tags."""
    if not task.engines:
        return
    yield Axis(
        block=ENGINE,
        name=ENGINE,
        values=tuple(engine_row(task, engine) for engine in task.engines),
        is_categorical=True,
    )
    for place, engine in enumerate(task.engines):
        if engine.runtime_image_tag:
            yield Axis(
                block=ENGINE,
                name=IMAGE_TAG,
                values=engine.runtime_image_tag,
                is_categorical=True,
                engine=place,
            )


def engine_row(task: TaskFile, engine: TaskEngine) -> Row:
    """Return what tells an engine from the others, beside its tag."""
    row: Row = (("base_runtime", engine.base_runtime),)
    if all(other.model is None for other in task.engines):
        return row
    return (*row, ("model", (engine.model or task.model).id_or_path))


def _path_in_engine(place: int, path: str | None, _: str) -> str:
    return f"$.engines[{place}]{(path or '$')[1:]}"


def _env_axes(variables: Variables) -> Iterator[Axis]:
    for name, values in variables.items():
        yield Axis(block=ENV, name=name, values=values, is_categorical=True)


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


def _endpoint_axis(endpoint: EndpointConfig | None) -> Iterator[Axis]:
    if endpoint is not None:
        urls = tuple(dict.fromkeys(_several(endpoint.url)))
        yield Axis(block="endpoint", name=URL, values=urls, is_categorical=True)


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
