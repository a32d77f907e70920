"""How fast to sample: as configured, or faster while a burst or a session requests it."""

from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from shared.errors import RefusedError

MAX_RATE_REQUESTS: Final = 256


class SamplingRate:
    """The configured interval and the requested ones; the shortest counts, each until it ends.

    Seconds are monotonic.
    """

    def __init__(self, interval_seconds: float) -> None:
        self.configured_seconds = interval_seconds
        self._requests: dict[UUID, tuple[float, float]] = {}

    def request(
        self,
        key: UUID,
        interval_seconds: float,
        until: float,
        now: float,
        *,
        limit: int = MAX_RATE_REQUESTS,
    ) -> None:
        """A later request of a key replaces its former one.

        Raises RefusedError (conflict) at `limit` requests.
        """
        self._forget(now)
        if key not in self._requests and len(self._requests) >= limit:
            raise RefusedError(
                ErrorCode.CONFLICT, f"expected at most {limit} bursts at once on a node"
            )
        self._requests[key] = (interval_seconds, until)

    def withdraw(self, key: UUID) -> None:
        self._requests.pop(key, None)

    def interval_after(self, now: float) -> float:
        """Seconds from a tick at `now` to the next one.

        A request that ends before its next tick does not count, so that the last sample of a burst
        already has the interval until the next one.
        """
        self._forget(now)
        requested = [
            interval for interval, until in self._requests.values() if now + interval <= until
        ]
        return min([self.configured_seconds, *requested])

    def _forget(self, now: float) -> None:
        self._requests = {
            key: request for key, request in self._requests.items() if request[1] > now
        }
