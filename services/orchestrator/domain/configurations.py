"""The configurations of a task: what varies, and one value of each."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.task.parameters import ContinuousRange, IntegerRange, Scalar

MAX_TASK_EXPERIMENTS: Final = 5000
MAX_VALUES: Final = 1000  # of one parameter
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

    def show(self) -> dict[str, Any]:
        """The values by name, those of typed blocks under their block's name."""
        return {
            **{f"quant_config.{name}": value for name, value in self.quant.items()},
            **{f"parallel_config.{name}": value for name, value in self.parallel.items()},
            **{f"gpus.{name}": value for name, value in self.gpus.items()},
            **self.parameters,
        }


def point_of(values: Sequence[tuple[Axis, Any]]) -> Point:
    """The configuration with these values."""
    blocks: dict[str, dict[str, Any]] = {
        "quant_config": {},
        "parallel_config": {},
        "gpus": {},
        "parameters": {},
    }
    for axis, value in values:
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
