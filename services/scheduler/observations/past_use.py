"""How busy nodes were of late: a mean in which what is old counts less."""

from dataclasses import dataclass, field
from typing import Final

from schemas.base import NodeId

HALF_LIFE_SECONDS: Final = 900.0


@dataclass(slots=True)
class PastUse:
    """An exponentially weighted mean utilization by node, kept by every scheduler for itself.

    What was read holds until the next reading, but for no longer than `longest_seconds`: a gap
    tells nothing.
    """

    half_life_seconds: float = HALF_LIFE_SECONDS
    longest_seconds: float = 60.0
    _means: dict[NodeId, tuple[float, float]] = field(default_factory=dict)  # seconds, mean

    def record(self, node_id: NodeId, utilization_percent: float | None, seconds: float) -> None:
        """Count a reading that was received at `seconds` on a monotonic clock; None is unknown."""
        if utilization_percent is None:
            return
        mean_before = self._means.get(node_id)
        if mean_before is None:
            self._means[node_id] = (seconds, utilization_percent)
            return
        at, mean = mean_before
        lasted = min(max(0.0, seconds - at), self.longest_seconds)
        kept = 0.5 ** (lasted / self.half_life_seconds)
        self._means[node_id] = (seconds, kept * mean + (1.0 - kept) * utilization_percent)

    def mean(self, node_id: NodeId) -> float | None:
        """Return the node's mean of late; None where nothing was read."""
        mean = self._means.get(node_id)
        return mean[1] if mean is not None else None
