"""The configurations that a search may propose, as places: one number for each dimension.

A task over several engines has a dimension for these, the first, and dimensions of one engine each:
in the place of another's configuration there is None for them.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct

from schemas.task.parameters import ContinuousRange
from services.orchestrator.domain.configurations import (
    CONFIGURATIONS,
    ENGINE,
    ENV,
    Axis,
    Point,
    Row,
    point_of,
)
from shared.engines.variants import IMAGE_TAG

Place = tuple[int | float | None, ...]

_DRAWS: Final = 200
_MAX_COUNTED: Final = 20_000


class Dimension(Struct, frozen=True, kw_only=True):
    """An axis whose values are numbered from 0, or with `continuous` are numbers themselves.

    `is_ordered`: values next to each other are alike.
    """

    axis: Axis
    values: Sequence[Any] = ()
    is_ordered: bool = False
    continuous: ContinuousRange | None = None

    @property
    def name(self) -> str:
        """Return the name as `Point.show` has it."""
        axis = self.axis
        is_alone = axis.block in {"parameters", CONFIGURATIONS, ENGINE}
        return axis.name if is_alone else f"{axis.block}.{axis.name}"

    def value(self, at: float) -> Any:
        return self.values[int(at)] if self.continuous is None else at

    def at(self, value: Any) -> int | float | None:
        """Return the place of `value`; None if it is none of this dimension's."""
        if (span := self.continuous) is not None:
            is_within = isinstance(value, int | float) and span.low <= value <= span.high
            return float(value) if is_within else None
        if isinstance(self.values, range):
            is_one = isinstance(value, int) and value in self.values
            return self.values.index(value) if is_one else None
        return next((n for n, item in enumerate(self.values) if _same(item, value)), None)

    def at_shown(self, parameters: Mapping[str, Any]) -> int | float | None:
        """Return where a configuration is that `Point.shown` wrote; None if it is not here."""
        if self.axis.has_rows:
            rows = enumerate(self.values)
            return next((number for number, row in rows if _has_row(parameters, row)), None)
        return self.at(parameters[self.name]) if self.name in parameters else None

    def draw(self, random: Random) -> int | float:
        if (span := self.continuous) is None:
            return random.randrange(len(self.values))
        if not span.log:
            return readable(random.uniform(span.low, span.high), span)
        return readable(math.exp(random.uniform(math.log(span.low), math.log(span.high))), span)


class Space(Struct, frozen=True, kw_only=True):
    dimensions: tuple[Dimension, ...]

    @property
    def engines(self) -> range:
        """Return the engines by their places; none where the task has one."""
        first = self.dimensions[0] if self.dimensions else None
        return range(len(first.values) if first is not None and first.axis.is_of_engines else 0)

    @property
    def parts(self) -> Sequence[int | None]:
        """Return the engines, each of which has a product of dimensions; None: the only one."""
        return self.engines or (None,)

    @property
    def size(self) -> int | None:
        """Count the configurations; None: more than can be counted."""
        if any(dimension.continuous is not None for dimension in self.dimensions):
            return None
        return sum(math.prod(map(len, self._choices(engine))) for engine in self.parts)

    def numbers_of(self, engine: int | None) -> tuple[int, ...]:
        """Return the dimensions, by number, that a configuration of the engine has."""
        return tuple(
            number
            for number, dimension in enumerate(self.dimensions)
            if dimension.axis.engine in {None, engine}
        )

    def engine_at(self, place: Place) -> int | None:
        """Return the engine of a configuration."""
        at = place[0] if self.engines else None
        return None if at is None else int(at)

    def point(self, place: Place) -> Point:
        pairs = zip(self.dimensions, place, strict=True)
        return point_of(
            [(dimension.axis, dimension.value(at)) for dimension, at in pairs if at is not None]
        )

    def place(self, parameters: Mapping[str, Any]) -> Place | None:
        """Return the place of a configuration that `Point.show` wrote; None if it is not here."""
        places = (self._place_in(engine, parameters) for engine in self.parts)
        return next((place for place in places if place is not None), None)

    def draw(self, random: Random, engine: int | None = None) -> Place:
        """Draw a configuration, of any engine where none is given."""
        if engine is None and self.engines:
            engine = random.choice(self.engines)
        numbers = self.numbers_of(engine)
        return tuple(
            engine
            if dimension.axis.is_of_engines
            else (dimension.draw(random) if number in numbers else None)
            for number, dimension in enumerate(self.dimensions)
        )

    def places(self) -> Iterator[Place]:
        """Yield all places of a space that can be counted, in the order of a grid."""
        for engine in self.parts:
            yield from itertools.product(*self._choices(engine))

    def single_values(self) -> Iterator[Point]:
        """Few configurations that together have every value; of a continuous range both ends."""
        for engine in self.parts:
            numbers = self.numbers_of(engine)
            firsts: list[int | float | None] = [
                _ends(dimension)[0] if number in numbers else None
                for number, dimension in enumerate(self.dimensions)
            ]
            if engine is not None:
                firsts[0] = engine
            yield self.point(tuple(firsts))
            for number in numbers:
                if self.dimensions[number].axis.is_of_engines:
                    continue
                for at in _ends(self.dimensions[number])[1:]:
                    yield self.point((*firsts[:number], at, *firsts[number + 1 :]))

    def _choices(self, engine: int | None) -> list[Sequence[int | None]]:
        """Return what each dimension may be in a configuration of the engine."""
        numbers = self.numbers_of(engine)
        return [
            (engine,)
            if dimension.axis.is_of_engines
            else (range(len(dimension.values)) if number in numbers else (None,))
            for number, dimension in enumerate(self.dimensions)
        ]

    def _place_in(self, engine: int | None, parameters: Mapping[str, Any]) -> Place | None:
        numbers = self.numbers_of(engine)
        own_dimensions = [self.dimensions[number] for number in numbers]
        names_tag = any(dimension.axis.is_of_tags for dimension in own_dimensions)
        if engine is not None and not names_tag and IMAGE_TAG in parameters:
            return None  # of an engine that is told by its tag
        names = {dimension.name for dimension in own_dimensions}
        if any(name.startswith(f"{ENV}.") and name not in names for name in parameters):
            return None
        at = {
            number: dimension.at_shown(parameters)
            for number, dimension in zip(numbers, own_dimensions, strict=True)
        }
        if engine is not None and _has_row(parameters, self.dimensions[0].values[engine]):
            at[0] = engine
        is_here = None not in at.values() and (engine is None or at[0] == engine)
        count = len(self.dimensions)
        return tuple(at.get(number) for number in range(count)) if is_here else None


def middle(space: Space, engine: int | None = None) -> Place:
    """The middle of what is ordered, the first of what is not, of the engine: else the first."""
    if engine is None and space.engines:
        engine = 0
    numbers = space.numbers_of(engine)
    return tuple(
        engine
        if dimension.axis.is_of_engines
        else (_middle(dimension) if number in numbers else None)
        for number, dimension in enumerate(space.dimensions)
    )


def draw_new(
    space: Space,
    random: Random,
    is_new: Callable[[Place], bool],
    engines: Sequence[int | None] = (None,),
) -> Place | None:
    """Draw a new place, of the first of the `engines` that has one; None if nothing new is left, or
    is too rare to be found.
    """
    for engine in engines:
        for _ in range(_DRAWS):
            place = space.draw(random, engine)
            if is_new(place):
                return place
    if space.size is None or space.size > _MAX_COUNTED:
        return None
    new_places = [place for place in space.places() if is_new(place)]
    return random.choice(new_places) if new_places else None


def space_of(axes: Sequence[Axis]) -> Space:
    """Return the space of the axes: each value once, numbers in ascending order."""
    return Space(dimensions=tuple(_dimension(axis) for axis in axes if axis.values or axis.span))


def readable(number: float, span: ContinuousRange) -> float:
    """`number` with 4 digits, within its range."""
    return min(max(float(f"{number:.4g}"), span.low), span.high)


def _middle(dimension: Dimension) -> int | float:
    if (span := dimension.continuous) is None:
        return (len(dimension.values) - 1) // 2 if dimension.is_ordered else 0
    middle = math.sqrt(span.low * span.high) if span.log else (span.low + span.high) / 2
    return readable(middle, span)


def _dimension(axis: Axis) -> Dimension:
    if isinstance(axis.span, ContinuousRange):
        return Dimension(axis=axis, is_ordered=True, continuous=axis.span)
    if axis.span is not None:
        steps = range(axis.span.low, axis.span.high + 1, axis.span.step or 1)
        return Dimension(axis=axis, values=steps, is_ordered=True)
    if axis.is_of_engines:  # two may differ in what is theirs alone
        return Dimension(axis=axis, values=axis.values)
    distinct = tuple({_identity(value): value for value in axis.values}.values())
    is_ordered = not axis.is_categorical and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in distinct
    )
    values = tuple(sorted(distinct)) if is_ordered else distinct
    return Dimension(axis=axis, values=values, is_ordered=is_ordered)


def _ends(dimension: Dimension) -> tuple[int | float, ...]:
    if (span := dimension.continuous) is not None:
        return (span.low, span.high)
    if isinstance(dimension.values, range):
        return tuple(dict.fromkeys((0, len(dimension.values) - 1)))
    return tuple(range(len(dimension.values)))


def _identity(value: Any) -> Any:
    """Return what distinguishes a value: 1, 1.0 and True are three."""
    return tuple(map(_identity, value)) if isinstance(value, tuple) else (type(value), value)


def _has_row(parameters: Mapping[str, Any], row: Row) -> bool:
    return all(name in parameters and _same(parameters[name], value) for name, value in row)


def _same(first: Any, other: Any) -> bool:
    return type(first) is type(other) and bool(first == other)
