"""Whether a consumer goes on, by what its server says of it. Pure."""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from nats.js.api import ConsumerInfo

IDLE_SILENT_SECONDS: Final = 10.0  # longer than servers take to elect a leader, 4 to 9 s
# What was handed out and is not settled is handed out again after 30 s (`routes.ACK_WAIT_SECONDS`).
BUSY_SILENT_SECONDS: Final = 90.0


class ConsumerState(Struct, frozen=True):
    """How often something was handed out, what waits, and what was handed out and not settled."""

    deliveries: int
    pending: int
    unsettled: int


@dataclass(slots=True)
class Standstill:
    """Follows one consumer: for how long it has got nothing although something waits for it."""

    state: ConsumerState | None = None
    since: float = 0.0

    def seconds(self, state: ConsumerState, now: float) -> float:
        """Return for how long it stands still, by any clock; 0 if it does not."""
        is_still = (
            self.state is not None
            and state.pending > 0
            and self.state.pending > 0
            and state.deliveries == self.state.deliveries
        )
        self.state = state
        if not is_still:
            self.since = now
        return now - self.since

    @property
    def limit_seconds(self) -> float:
        """The time for which it may stand still: longer while it may be working on what it got."""
        is_busy = self.state is not None and self.state.unsettled > 0
        return BUSY_SILENT_SECONDS if is_busy else IDLE_SILENT_SECONDS


def state_of(info: ConsumerInfo) -> ConsumerState:
    """Return what tells whether a consumer goes on."""
    return ConsumerState(
        deliveries=info.delivered.consumer_seq if info.delivered is not None else 0,
        pending=info.num_pending or 0,
        unsettled=info.num_ack_pending or 0,
    )
