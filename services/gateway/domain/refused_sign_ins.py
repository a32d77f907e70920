"""Refused sign-ins, counted by address, reason and minute: nobody fills a table with them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

MAX_ROWS: Final = 100  # of one minute, on one gateway
MINUTES_KEPT: Final = 60  # while Postgres is away
OTHERS: Final = "more of this minute, which are not told apart"


class RefusedSignIn(Struct, frozen=True, kw_only=True):
    """What is counted together, in the minute that begins at `at`; whose token it was, if it is one
    of ours.
    """

    at: datetime
    address: str
    reason: str
    caller: str = ""
    token_id: UUID | None = None


@dataclass(slots=True)
class RefusedSignIns:
    """Counts until they are taken. A minute has few rows, however many addresses and reasons."""

    _minute: datetime | None = None
    _rows: set[RefusedSignIn] = field(default_factory=set)  # of that minute, also those taken
    _counts: dict[RefusedSignIn, int] = field(default_factory=dict)
    _places: dict[RefusedSignIn, tuple[str, str]] = field(default_factory=dict)

    def count(self, refused: RefusedSignIn, method: str, path: str) -> None:
        """Count one more."""
        if refused.at != self._minute:
            self._minute, self._rows = refused.at, set()
        if refused not in self._rows and len(self._rows) >= MAX_ROWS:
            refused = RefusedSignIn(at=refused.at, address="", reason=OTHERS)
        self._rows.add(refused)
        self._counts[refused] = self._counts.get(refused, 0) + 1
        self._places.setdefault(refused, (method, path))

    def take(self) -> Sequence[tuple[RefusedSignIn, int, str, str]]:
        """Return what was counted since the last call: with its number, method and path."""
        counts, self._counts = self._counts, {}
        places, self._places = self._places, {}
        return [(row, number, *places[row]) for row, number in counts.items()]

    def put_back(self, counted: Sequence[tuple[RefusedSignIn, int, str, str]]) -> None:
        """Keep what could not be stored for the next time; of many minutes a part."""
        for row, number, *place in counted[: MAX_ROWS * MINUTES_KEPT - len(self._counts)]:
            self._counts[row] = self._counts.get(row, 0) + number
            self._places.setdefault(row, (place[0], place[1]))


def minute_of(now: datetime) -> datetime:
    """Return when a time's minute began."""
    return now.replace(second=0, microsecond=0)
