"""The values that a task's parameters may take."""

from typing import Annotated

from msgspec import Meta

from schemas.base import END, Integer, PositiveInt
from schemas.task.part import TaskPart

Scalar = str | Integer | float | bool | None
SomeScalars = Annotated[tuple[Scalar, ...], Meta(min_length=1, max_length=1000)]


class Choice(TaskPart, frozen=True, kw_only=True, tag_field="type", tag="choice"):
    """The long form of a parameter's values."""

    values: SomeScalars


class Categorical(TaskPart, frozen=True, kw_only=True, tag_field="type", tag="categorical"):
    """The same; for a search, values without an order."""

    values: SomeScalars


class IntegerRange(TaskPart, frozen=True, kw_only=True, tag_field="type", tag="integer"):
    """Whole numbers from `low` to `high`, both included; a grid takes every `step`-th."""

    low: Integer
    high: Integer
    step: PositiveInt | None = None


class ContinuousRange(TaskPart, frozen=True, kw_only=True, tag_field="type", tag="continuous"):
    """Numbers from `low` to `high`; with `log` as many between 1 and 10 as between 10 and 100."""

    low: float
    high: float
    log: bool = False


ParameterValues = SomeScalars | Choice | Categorical | IntegerRange | ContinuousRange
ParameterName = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z][A-Za-z0-9_-]{{0,63}}{END}",
        description="1 to 64 letters, digits, - and _, the first a letter",
    ),
]
ParameterGrid = Annotated[
    dict[ParameterName, ParameterValues],
    Meta(max_length=64),
]
Configuration = Annotated[dict[ParameterName, Scalar], Meta(min_length=1, max_length=64)]
Configurations = Annotated[tuple[Configuration, ...], Meta(min_length=1, max_length=1000)]
# Of an engine's environment; None: it is not set.
VariableName = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z_][A-Za-z0-9_]{{0,127}}{END}",
        description="1 to 128 letters, digits and _, the first no digit",
    ),
]
Variables = Annotated[dict[VariableName, SomeScalars], Meta(max_length=32)]
