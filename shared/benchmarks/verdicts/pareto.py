"""Which of several points none of the others beats in everything."""

from collections.abc import Sequence

Point = tuple[float, ...]


def front(points: Sequence[Point]) -> list[int]:
    """The numbers of those that none beats: is as small in everything, and smaller in one.

    In the order of their first values. Equal points are all of it.
    """
    found: list[int] = []
    # A point can be beaten only by one that is before it in this order.
    for number in sorted(range(len(points)), key=lambda number: points[number]):
        if not any(_beats(points[other], points[number]) for other in found):
            found.append(number)
    return found


def front_numbers(points: Sequence[Point]) -> list[int]:
    """0 for those of the front, 1 for those of the front without these, and so on."""
    numbers = [0] * len(points)
    left, count = list(range(len(points))), 0
    while left:
        first = {left[at] for at in front([points[number] for number in left])}
        for number in first:
            numbers[number] = count
        left = [number for number in left if number not in first]
        count += 1
    return numbers


def _beats(one: Point, other: Point) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
