"""The cells of a device: the ledger's exclusion constraint gives each to one holding at a time."""

from collections.abc import Iterable
from typing import Final, Self

from schemas.gpus.device_grant import CELLS_PER_DEVICE

CELLS_PER_HUNDREDTH: Final = 100

Range = tuple[int, int]  # from, to but not with


class FreeCells:
    """What no open holding has of a device, in order."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges = list(ranges)

    @classmethod
    def of_device(cls, number: int) -> Self:
        """Return all cells of a device."""
        first = number * CELLS_PER_DEVICE
        return cls([(first, first + CELLS_PER_DEVICE)])

    def remove(self, ranges: Iterable[Range]) -> None:
        for lower, upper in ranges:
            self.ranges = [
                piece
                for begin, end in self.ranges
                for piece in ((begin, min(end, lower)), (max(begin, upper), end))
                if piece[0] < piece[1]
            ]

    def take(self, hundredths: int) -> list[Range] | None:
        """So many of the first ones; None if there are not as many."""
        missing = hundredths * CELLS_PER_HUNDREDTH
        ranges: list[Range] = []
        for begin, end in self.ranges:
            size = min(missing, end - begin)
            if size:
                ranges.append((begin, begin + size))
            missing -= size
        if missing:
            return None
        self.remove(ranges)
        return ranges


def multirange(ranges: Iterable[Range]) -> str:
    """Write ranges as Postgres does."""
    return "{" + ",".join(f"[{begin},{end})" for begin, end in ranges) + "}"
