"""For how long nodes have been silent, as far as this process could receive anything at all."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.base import NodeId


@dataclass(slots=True)
class NodeLiveness:
    """Silence is measured only while this process receives: it restarts at start-up, after a bus
    outage and after a pause of this process.
    """

    longest_gap_seconds: float
    clock: Callable[[], float] = time.monotonic
    _agents: dict[NodeId, float] = field(default_factory=dict)
    _executors: dict[NodeId, float] = field(default_factory=dict)
    _receiving_since: float = field(init=False)
    _checked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._receiving_since = self._checked_at = self.clock()

    def record_agent(self, node_id: NodeId) -> None:
        """A message of a node's telemetry agent was received."""
        self._agents[node_id] = self.clock()

    def record_executor(self, node_id: NodeId) -> None:
        """A message of a node's executor was received."""
        self._executors[node_id] = self.clock()

    def check(self, *, is_connected: bool) -> float:
        """Seconds since the last check; 0 if this process did not receive all that time."""
        now = self.clock()
        elapsed, self._checked_at = now - self._checked_at, now
        if is_connected and elapsed <= self.longest_gap_seconds:
            return elapsed
        self._receiving_since = now
        return 0.0

    def agent_silence(self, node_id: NodeId) -> tuple[float, bool]:
        """Seconds of an agent's silence, and whether it has sent anything since this process
        receives.
        """
        received_at = self._agents.get(node_id, float("-inf"))
        since = self._receiving_since
        return self.clock() - max(received_at, since), received_at >= since

    def has_reported(self, node_id: NodeId, within_seconds: float, *, agent: bool) -> bool:
        """Return True if a message of a node's executor was received this recently, or also of its
        agent.
        """
        never = float("-inf")
        agent_at = self._agents.get(node_id, never) if agent else never
        received_at = max(agent_at, self._executors.get(node_id, never))
        return self.clock() - received_at <= within_seconds

    def silence(self, node_id: NodeId) -> float:
        """Seconds without any message of a node."""
        since = self._receiving_since
        received_at = max(self._agents.get(node_id, since), self._executors.get(node_id, since))
        return self.clock() - max(received_at, since)
