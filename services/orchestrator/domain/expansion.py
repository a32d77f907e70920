"""From a task file to its configurations."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from schemas.base import LARGEST_INTEGER
from schemas.errors import ErrorCode
from schemas.task import (
    ContinuousRange,
    IntegerRange,
    ParallelConfig,
    ParameterValues,
    QuantConfig,
    TaskFile,
)
from shared.errors import RefusedError

LARGEST_TASK: Final = 5000
_DTYPES: Final = ("gemm_dtype", "kvcache_dtype", "attention_dtype", "moe_dtype")
_DEGREES: Final = (
    *("tp", "pp", "dp", "cp", "dcp", "ep"),
    *("moe_tp", "moe_ep", "moe_cluster", "moe_dense_tp", "enable_expert_parallel"),
)
MOST_VALUES: Final = 1000


class Axis(Struct, frozen=True, kw_only=True):
    """One thing that varies. `block` is the part of the task file that names it."""

    block: str
    name: str
    values: tuple[Any, ...]


class Point(Struct, frozen=True, kw_only=True):
    """One configuration: a value on every axis."""

    quant: dict[str, Any]
    parallel: dict[str, Any]
    parameters: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        """The values by name, those of typed blocks under their block's name."""
        return {
            **{f"quant_config.{name}": value for name, value in self.quant.items()},
            **{f"parallel_config.{name}": value for name, value in self.parallel.items()},
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
    """Quantization, then parallelism, then parameters; the last key varies fastest.

    Raises RefusedError for a grid larger than any task may be, and for values that are no grid.
    """
    axes = (*_quant_axes(task.quant_config), *_parallel_axes(task.parallel_config))
    axes = (*axes, *_parameter_axes(task))
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
    points = tuple(_point(axes, values) for values in itertools.islice(combinations, kept))
    return Grid(points=points, total=total, cut=total - kept)


def _point(axes: tuple[Axis, ...], values: tuple[Any, ...]) -> Point:
    blocks: dict[str, dict[str, Any]] = {
        "quant_config": {},
        "parallel_config": {},
        "parameters": {},
    }
    for axis, value in zip(axes, values, strict=True):
        blocks[axis.block][axis.name] = value
    return Point(
        quant=blocks["quant_config"],
        parallel=blocks["parallel_config"],
        parameters=blocks["parameters"],
    )


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
    if isinstance(values, tuple):
        return values
    if not isinstance(values, IntegerRange | ContinuousRange):
        return values.values
    path = f"$.parameters.{name}"
    if values.high < values.low:
        message = f"expected at least {values.low:g}, its low, got {values.high:g}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.high")
    if isinstance(values, ContinuousRange):
        message = "a grid cannot try every number of a continuous range: give a list of values"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
    if values.step is None:
        message = "a grid takes an integer range in steps: give its step, or a list of values"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
    steps = range(values.low, values.high + 1, values.step)
    if len(steps) > MOST_VALUES:
        message = f"expected at most {MOST_VALUES} values of a parameter, got {len(steps)}"
        raise RefusedError(ErrorCode.BAD_REQUEST, message, path=f"{path}.step")
    return tuple(steps)


def _several(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)
