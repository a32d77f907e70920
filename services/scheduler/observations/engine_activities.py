"""Whether engines of attempts have had requests since the last comparison."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from schemas.base import FRESH_INTERVALS, NodeId
from schemas.executor.engine_samples import EngineSampled
from services.scheduler.domain.idle import Activity, engine_activity

Key = tuple[NodeId, UUID]


@dataclass(slots=True)
class EngineActivities:
    """By node and reservation; an engine of which nothing came for three intervals has none."""

    clock: Callable[[], float] = time.monotonic
    _newest: dict[Key, tuple[EngineSampled, float]] = field(default_factory=dict)
    _busy: set[Key] = field(default_factory=set)

    def observe(self, sample: EngineSampled) -> None:
        key = (sample.node_id, sample.reservation_id)
        sample_before, _ = self._newest.get(key, (None, 0.0))
        activity = engine_activity(sample_before, sample)
        if activity is None:
            return
        self._newest[key] = (sample, self.clock())
        if activity is Activity.BUSY:
            self._busy.add(key)

    def take(self) -> dict[Key, Activity]:
        """Return each engine's activity since the last call."""
        now = self.clock()
        self._newest = {
            key: (sample, at)
            for key, (sample, at) in self._newest.items()
            if now - at <= FRESH_INTERVALS * sample.interval_seconds
        }
        busy, self._busy = self._busy, set()
        return {key: Activity.BUSY if key in busy else Activity.QUIET for key in self._newest}
