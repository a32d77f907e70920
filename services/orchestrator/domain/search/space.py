"""The configurations that a search may propose, as places: one number for each dimension."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct

from schemas.task.parameters import ContinuousRange
from services.orchestrator.domain.configurations import CONFIGURATIONS, Axis, Point, Row, point_of

Place = tuple[int | float, ...]

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
        is_alone = axis.block in {"parameters", CONFIGURATIONS}
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
        if self.axis.block == CONFIGURATIONS:
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
    def size(self) -> int | None:
        """Count the configurations; None: more than can be counted."""
        if any(dimension.continuous is not None for dimension in self.dimensions):
            return None
        return math.prod(len(dimension.values) for dimension in self.dimensions)

    def point(self, place: Place) -> Point:
        pairs = zip(self.dimensions, place, strict=True)
        return point_of([(dimension.axis, dimension.value(at)) for dimension, at in pairs])

    def place(self, parameters: Mapping[str, Any]) -> Place | None:
        """Return the place of a configuration that `Point.show` wrote; None if it is not here."""
        places = [dimension.at_shown(parameters) for dimension in self.dimensions]
        known_places = tuple(at for at in places if at is not None)
        return known_places if len(known_places) == len(places) else None

    def draw(self, random: Random) -> Place:
        return tuple(dimension.draw(random) for dimension in self.dimensions)

    def places(self) -> Iterator[Place]:
        """Yield all places of a space that can be counted, in the order of a grid."""
        return itertools.product(*(range(len(dimension.values)) for dimension in self.dimensions))

    def single_values(self) -> Iterator[Point]:
        """Few configurations that together have every value; of a continuous range both ends."""
        firsts = [_ends(dimension)[0] for dimension in self.dimensions]
        yield self.point(tuple(firsts))
        for number, dimension in enumerate(self.dimensions):
            for at in _ends(dimension)[1:]:
                yield self.point((*firsts[:number], at, *firsts[number + 1 :]))


def middle(space: Space) -> Place:
    """The middle of what is ordered, the first of what is not."""
    return tuple(_middle(dimension) for dimension in space.dimensions)


def draw_new(space: Space, random: Random, is_new: Callable[[Place], bool]) -> Place | None:
    """Draw a new place; None if nothing new is left, or is too rare to be found."""
    for _ in range(_DRAWS):
        place = space.draw(random)
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
