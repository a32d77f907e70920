"""Energy of a GPU over a window."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from schemas.results.measurements import EnergySource
from services.results.domain.reading import Reading, Span

JOULES_PER_WH: Final = 3600.0
Point = tuple[float, float]


class Energy(NamedTuple):
    """How much, and how it is known."""

    watt_hours: float
    source: EnergySource


def energy_of(readings: Sequence[Reading], spans: Sequence[Span]) -> Energy | None:
    """Energy over the spans: by the device's counter if it has one, else by trapezoids over power.

    Readings around the spans give the values at their edges. None if neither was ever known.
    `readings` are sorted by time.
    """
    source = EnergySource.COUNTER
    joules = _joules_by_counter(readings)
    if not joules:
        source, joules = EnergySource.POWER, _joules_by_power(readings)
    if not joules:
        return None
    used = sum(_at(joules, span.end) - _at(joules, span.start) for span in spans)
    return Energy(used / JOULES_PER_WH, source)


def _joules_by_counter(readings: Sequence[Reading]) -> list[Point]:
    """The counter over time; nothing if it is incomplete or ever went backwards."""
    points = [(r.at, r.energy_mj / 1000.0) for r in readings if r.energy_mj is not None]
    complete = len(points) == len(readings) >= 2
    joules = [joules for _, joules in points]
    return points if complete and joules == sorted(joules) else []


def _joules_by_power(readings: Sequence[Reading]) -> list[Point]:
    """Power summed up; the first and last reading stand for half an interval beyond them."""
    known_points = [
        (r.at, r.power_draw_w, r.interval_seconds) for r in readings if r.power_draw_w is not None
    ]
    if not known_points:
        return []
    first_at, first_w, first_interval = known_points[0]
    last_at, last_w, last_interval = known_points[-1]
    powers = [
        (first_at - first_interval / 2, first_w),
        *((at, watts) for at, watts, _ in known_points),
        (last_at + last_interval / 2, last_w),
    ]
    areas = ((end - start) * (a + b) / 2 for (start, a), (end, b) in pairwise(powers))
    return list(zip((at for at, _ in powers), accumulate(areas, initial=0.0), strict=True))


def _at(points: Sequence[Point], at: float) -> float:
    """The value at a time, on the line between its neighbours; beyond the ends, that of the end."""
    position = bisect_right(points, at, key=lambda point: point[0])
    if position == 0:
        return points[0][1]
    if position == len(points):
        return points[-1][1]
    (start, joules_before), (end, joules_after) = points[position - 1], points[position]
    return joules_before + (joules_after - joules_before) * (at - start) / (end - start)
