"""How fast to sample: as configured, or faster while somebody asks for it."""

from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from shared.errors import RefusedError

MOST_WISHES: Final = 256


class Pace:
    """The configured interval and the wishes for shorter ones; the shortest counts until it ends.

    Seconds are monotonic.
    """

    def __init__(self, interval_seconds: float) -> None:
        self._configured = interval_seconds
        self._wishes: dict[UUID, tuple[float, float]] = {}

    def wish(
        self,
        key: UUID,
        interval_seconds: float,
        until: float,
        now: float,
        *,
        most: int = MOST_WISHES,
    ) -> None:
        """Ask for an interval; the same key again replaces what it asked for.

        Raises RefusedError (conflict) when `most` wishes stand.
        """
        self._forget(now)
        if key not in self._wishes and len(self._wishes) >= most:
            raise RefusedError(
                ErrorCode.CONFLICT, f"expected at most {most} bursts at once on a node"
            )
        self._wishes[key] = (interval_seconds, until)

    def withdraw(self, key: UUID) -> None:
        """Ask for nothing any more."""
        self._wishes.pop(key, None)

    def interval_after(self, now: float) -> float:
        """Seconds from a tick at `now` to the next one.

        A wish that ends before its next tick has no say in it, so that the last sample of a burst
        already tells when the next one is due.
        """
        self._forget(now)
        wished = [interval for interval, until in self._wishes.values() if now + interval <= until]
        return min([self._configured, *wished])

    def _forget(self, now: float) -> None:
        self._wishes = {key: wish for key, wish in self._wishes.items() if wish[1] > now}
