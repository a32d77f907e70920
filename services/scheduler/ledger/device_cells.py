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
        """All of them."""
        first = number * CELLS_PER_DEVICE
        return cls([(first, first + CELLS_PER_DEVICE)])

    def remove(self, held: Iterable[Range]) -> None:
        for lower, upper in held:
            self.ranges = [
                piece
                for begin, end in self.ranges
                for piece in ((begin, min(end, lower)), (max(begin, upper), end))
                if piece[0] < piece[1]
            ]

    def take(self, hundredths: int) -> list[Range] | None:
        """So many of the first ones; None if there are not as many."""
        missing = hundredths * CELLS_PER_HUNDREDTH
        taken: list[Range] = []
        for begin, end in self.ranges:
            size = min(missing, end - begin)
            if size:
                taken.append((begin, begin + size))
            missing -= size
        if missing:
            return None
        self.remove(taken)
        return taken


def multirange(ranges: Iterable[Range]) -> str:
    """As Postgres writes it."""
    return "{" + ",".join(f"[{begin},{end})" for begin, end in ranges) + "}"
