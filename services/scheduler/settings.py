"""What the scheduler reads from the environment, as `GPUSTEWARD_SCHEDULER_<FIELD>`."""

from schemas.base import PositiveSeconds, Seconds
from services.scheduler.domain.placement import Weights
from shared.settings import CommonSettings


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """Timing and weights of the scheduler.

    `leader_ttl_seconds` is how long a silent leader keeps others from deciding. A fleet that is
    empty, or a node that has not told its devices, rules nothing out for `inventory_grace_seconds`.
    """

    leader_ttl_seconds: PositiveSeconds = 3.0
    inventory_grace_seconds: Seconds = 10.0
    snapshot_timeout_seconds: PositiveSeconds = 2.0
    memory_weight: float = 0.6
    utilization_weight: float = 0.4

    @property
    def weights(self) -> Weights:
        """The score's weights."""
        return Weights(memory=self.memory_weight, utilization=self.utilization_weight)
