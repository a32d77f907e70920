"""The lease arithmetic that fencing rests on, by the holder's own monotonic clock.

Every holder (an attempt, a gang's member, `gpusteward exec`, the orchestrator until an executor
takes over) renews at a third of the lease and ends what runs before the ledger lets it go.
"""

from dataclasses import dataclass
from typing import Final

MAX_STOP_BUDGET_SECONDS: Final = 5.0
RENEWALS_PER_TTL: Final = 3


def renew_interval_seconds(ttl_seconds: float) -> float:
    """Return the time between confirmed renewals."""
    return ttl_seconds / RENEWALS_PER_TTL


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease confirmed by a renewal that was *sent* at `confirmed_at`, monotonic seconds.

    The sending counts, not the answer: the ledger may have extended it the moment it was sent.
    """

    ttl_seconds: float
    confirmed_at: float

    @property
    def stop_budget_seconds(self) -> float:
        """Reserved at the end of the lease for ending what runs under it."""
        return min(MAX_STOP_BUDGET_SECONDS, self.ttl_seconds / 3)

    @property
    def renew_at(self) -> float:
        return self.confirmed_at + renew_interval_seconds(self.ttl_seconds)

    @property
    def stop_at(self) -> float:
        """The moment from which nothing may rely on the lease."""
        return self.confirmed_at + self.ttl_seconds - self.stop_budget_seconds

    @property
    def kill_at(self) -> float:
        """The moment at which the guard kills what the holder should have ended by now."""
        return self.stop_at + self.stop_budget_seconds * 0.6

    @property
    def retry_seconds(self) -> float:
        """The pause after an unanswered renewal."""
        return min(1.0, self.ttl_seconds / 12)

    def request_timeout_seconds(self, now: float) -> float:
        """Return how long one renewal may take: never beyond the moment of stopping."""
        return max(0.05, min(5.0, self.ttl_seconds / 3, self.stop_at - now))

    def stop_grace_seconds(self, wanted_seconds: float) -> float:
        """Return how long the engine may take to end by itself, so that killing it still fits."""
        return min(wanted_seconds, self.stop_budget_seconds * 0.4)
