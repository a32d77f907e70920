"""The configurations of a task: what varies, and one value of each."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.task.parameters import ContinuousRange, IntegerRange, Scalar
from shared.engines.variants import IMAGE_TAG, Variant, variant_of

MAX_TASK_EXPERIMENTS: Final = 5000
MAX_VALUES: Final = 1000  # of one parameter
POWER_LIMIT: Final = "power_limit_w"
SM_CLOCK: Final = "sm_clock_mhz"
URL: Final = "url"
CONFIGURATIONS: Final = "configurations"
ENGINE: Final = "engine"
ENV: Final = "env"

# Names with values that go together: one of a task's `configurations`, or of its `engines`.
Row = tuple[tuple[str, Scalar], ...]


class Axis(Struct, frozen=True, kw_only=True):
    """One thing that varies. `block` is the part of the task file that names it.

    A search also takes a `span` in place of values. `is_categorical`: values without an order.
    Those of the block `configurations` are rows, and so are the engines of a task over several:
    what varies of one of them alone has its place among them as `engine`.
    """

    block: str
    name: str
    values: tuple[Any, ...] = ()
    span: IntegerRange | ContinuousRange | None = None
    is_categorical: bool = False
    engine: int | None = None

    @property
    def is_of_engines(self) -> bool:
        """Return whether it is what distinguishes the engines of a task."""
        return self.block == ENGINE and self.name == ENGINE

    @property
    def is_of_tags(self) -> bool:
        """Return whether it is the versions of one engine."""
        return self.block == ENGINE and self.name == IMAGE_TAG

    @property
    def has_rows(self) -> bool:
        return self.block == CONFIGURATIONS or self.is_of_engines

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """Return the values by the name of what they are of: of rows one for each parameter."""
        if not self.has_rows:
            return {self.name: self.values}
        names = [name for name, _ in self.values[0]]
        return {
            name: tuple(row[place][1] for row in self.values) for place, name in enumerate(names)
        }


class Point(Struct, frozen=True, kw_only=True):
    """One configuration: a value on every axis that its engine has. `engine` is empty where the
    task has one; `env` are variables, None those that are not set.
    """

    quant: dict[str, Any]
    parallel: dict[str, Any]
    parameters: dict[str, Any]
    gpus: dict[str, Any] = {}
    endpoint: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    env: dict[str, Any] = {}

    @property
    def variant(self) -> Variant:
        return variant_of(self.engine)

    def show(self) -> dict[str, Any]:
        """The values by name, those of typed blocks under their block's name."""
        return {
            **self.engine,
            **{f"{ENV}.{name}": value for name, value in self.env.items()},
            **{f"quant_config.{name}": value for name, value in self.quant.items()},
            **{f"parallel_config.{name}": value for name, value in self.parallel.items()},
            **{f"gpus.{name}": value for name, value in self.gpus.items()},
            **{f"endpoint.{name}": value for name, value in self.endpoint.items()},
            **self.parameters,
        }


def point_of(values: Sequence[tuple[Axis, Any]]) -> Point:
    """The configuration with these values."""
    blocks: dict[str, dict[str, Any]] = {
        "quant_config": {},
        "parallel_config": {},
        "gpus": {},
        "endpoint": {},
        "parameters": {},
        ENGINE: {},
        ENV: {},
    }
    for axis, value in values:
        if axis.has_rows:
            blocks[ENGINE if axis.is_of_engines else "parameters"].update(value)
        else:
            blocks[axis.block][axis.name] = value
    return Point(
        quant=blocks["quant_config"],
        parallel=blocks["parallel_config"],
        gpus=blocks["gpus"],
        endpoint=blocks["endpoint"],
        parameters=blocks["parameters"],
        engine=blocks[ENGINE],
        env=blocks[ENV],
    )
