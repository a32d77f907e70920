"""How often a token may ask."""

from dataclasses import dataclass, field
from typing import Final

BURST_SECONDS: Final = 2.0


@dataclass(slots=True)
class RequestRates:
    """A bucket for each caller that holds the requests of two seconds, at least one, and is filled
    at the caller's rate.
    """

    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)  # left, at

    def take(self, caller: str, per_second: float, now: float) -> float:
        """Return 0 if the caller may ask now, else in how many seconds it may."""
        room = max(1.0, per_second * BURST_SECONDS)
        tokens, at = self._buckets.get(caller, (room, now))
        tokens = min(room, tokens + (now - at) * per_second)
        taken_tokens = 1.0 if tokens >= 1.0 else 0.0
        self._buckets[caller] = (tokens - taken_tokens, now)
        return 0.0 if taken_tokens else (1.0 - tokens) / per_second
