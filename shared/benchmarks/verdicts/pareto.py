"""Which of several points none of the others beats in everything."""

from collections.abc import Sequence

Point = tuple[float, ...]


def front(points: Sequence[Point]) -> list[int]:
    """The numbers of those that none beats: is as small in everything, and smaller in one.

    In the order of their first values. Equal points are all of it.
    """
    members: list[int] = []
    # A point can be beaten only by one that is before it in this order.
    for number in sorted(range(len(points)), key=lambda number: points[number]):
        if not any(_beats(points[other], points[number]) for other in members):
            members.append(number)
    return members


def front_numbers(points: Sequence[Point]) -> list[int]:
    """Return 0 for those of the front, 1 for those of the front without these, and so on."""
    numbers = [0] * len(points)
    remaining, count = list(range(len(points))), 0
    while remaining:
        first = {remaining[at] for at in front([points[number] for number in remaining])}
        for number in first:
            numbers[number] = count
        remaining = [number for number in remaining if number not in first]
        count += 1
    return numbers


def _beats(point: Point, other: Point) -> bool:
    return point != other and all(a <= b for a, b in zip(point, other, strict=True))
