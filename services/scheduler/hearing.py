"""When nodes were last heard, as far as this process could hear anything at all."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.base import NodeId


@dataclass(slots=True)
class Hearing:
    """Silence counts only while it was listened to.

    A start, an outage of the bus and a pause of this process itself begin every silence anew.
    """

    longest_gap_seconds: float
    clock: Callable[[], float] = time.monotonic
    _agents: dict[NodeId, float] = field(default_factory=dict)
    _executors: dict[NodeId, float] = field(default_factory=dict)
    _listens_since: float = field(init=False)
    _looked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._listens_since = self._looked_at = self.clock()

    def hear_agent(self, node_id: NodeId) -> None:
        """A message of a node's telemetry agent has passed."""
        self._agents[node_id] = self.clock()

    def hear_executor(self, node_id: NodeId) -> None:
        """A message of a node's executor has passed."""
        self._executors[node_id] = self.clock()

    def look(self, *, can_hear: bool) -> float:
        """Seconds listened since the last look; 0 if it was not listened all the time."""
        now = self.clock()
        elapsed, self._looked_at = now - self._looked_at, now
        if can_hear and elapsed <= self.longest_gap_seconds:
            return elapsed
        self._listens_since = now
        return 0.0

    def agent_silence(self, node_id: NodeId) -> tuple[float, bool]:
        """Seconds since a node's agent was heard, and whether it was heard since we listen."""
        heard_at = self._agents.get(node_id, float("-inf"))
        since = self._listens_since
        return self.clock() - max(heard_at, since), heard_at >= since

    def silence(self, node_id: NodeId) -> float:
        """Seconds in which nothing of a node was heard."""
        heard_at = (self._agents.get(node_id), self._executors.get(node_id), self._listens_since)
        return self.clock() - max(at for at in heard_at if at is not None)
