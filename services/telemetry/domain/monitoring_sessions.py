"""Monitoring sessions of a node: statistics of its GPUs from a start to a stop."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.telemetry.monitoring import GpuStats, MonitoringView, StartMonitoring
from schemas.telemetry.readings import GpuReading, GpuSampled
from shared.errors import RefusedError
from shared.gpu.stats import GpuTally

MAX_RUNNING: Final = 64
MAX_STORED: Final = 256
STORED_SECONDS: Final = 600.0


@dataclass(slots=True)
class MonitoringSession:
    """Its ticks are counted from the first sample on, one per interval."""

    query: StartMonitoring
    started_at: datetime
    started_seconds: float
    ended: float | None = None
    sample_count: int = 0
    missed_before_first: int = 0
    _first: float = 0.0
    _slot: int = -1
    _gpus: dict[str, tuple[GpuReading, GpuTally]] = field(default_factory=dict)

    @property
    def ends(self) -> float:
        return self.started_seconds + self.query.max_seconds

    @property
    def is_running(self) -> bool:
        """Return True until it is stopped or its time is up."""
        return self.ended is None

    def observe(self, sample: GpuSampled, now: float) -> None:
        """Count a sample, unless one of this tick was counted."""
        interval = self.query.interval_seconds
        if not self.sample_count:
            self._first = now
            self.missed_before_first = math.floor((now - self.started_seconds) / interval)
        # A tick may come early by half of what lies between the node's samples.
        early = min(sample.interval_seconds, interval) / 2
        slot = math.floor((now - self._first + early) / interval)
        if slot <= self._slot:
            return
        self._slot = slot
        self.sample_count += 1
        for gpu in sample.gpus:
            _, tally = self._gpus.get(gpu.uuid) or (gpu, GpuTally())
            self._gpus[gpu.uuid] = (gpu, tally)
            tally.add(
                utilization_percent=gpu.utilization_percent,
                memory_used_mb=gpu.memory_used_mb,
                memory_total_mb=gpu.memory_total_mb,
                temperature_c=gpu.temperature_c,
                power_draw_w=gpu.power_draw_w,
                power_limit_w=gpu.power_limit_w,
            )

    def view(self, now: float) -> MonitoringView:
        end = now if self.ended is None else self.ended
        return MonitoringView(
            node_id=self.query.node_id,
            monitoring_id=self.query.monitoring_id,
            running=self.is_running,
            started_at=self.started_at,
            monitoring_duration_seconds=round(end - self.started_seconds, 6),
            sample_count=self.sample_count,
            missed_count=self._count_missed(end),
            gpu_stats=self._stats(),
        )

    def _count_missed(self, end: float) -> int:
        interval = self.query.interval_seconds
        if not self.sample_count:
            return math.floor((end - self.started_seconds) / interval)
        # A tick is missed when half an interval has gone by since it was due.
        due = max(self._slot, math.floor((end - self._first) / interval - 0.5))
        return self.missed_before_first + due + 1 - self.sample_count

    def _stats(self) -> dict[str, GpuStats]:
        in_order = sorted(self._gpus.values(), key=lambda item: item[0].index)
        return {
            str(gpu.index): tally.stats(gpu.name or "unknown", gpu.uuid) for gpu, tally in in_order
        }


class MonitoringSessions:
    """The running sessions, and those that ended within the last ten minutes.

    Seconds are monotonic.
    """

    def __init__(self) -> None:
        self._sessions: dict[UUID, MonitoringSession] = {}

    def start(self, query: StartMonitoring, now: float, wall: datetime) -> MonitoringSession:
        """A new session, or the one of this id.

        Raises RefusedError (conflict) when too many are running.
        """
        self.advance(now)
        if (known_session := self._sessions.get(query.monitoring_id)) is not None:
            return known_session
        if sum(session.is_running for session in self._sessions.values()) >= MAX_RUNNING:
            raise RefusedError(
                ErrorCode.CONFLICT,
                f"expected at most {MAX_RUNNING} monitorings at once on a node; stop one",
            )
        session = MonitoringSession(query, wall, now)
        self._sessions[query.monitoring_id] = session
        return session

    def stop(self, monitoring_id: UUID, now: float) -> MonitoringSession:
        """End it; one that has ended stays as it is. Raises RefusedError (not_found)."""
        self.advance(now)
        session = self._sessions.get(monitoring_id)
        if session is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"no monitoring {monitoring_id} runs here or ended within the last ten minutes",
                path="$.monitoring_id",
            )
        if session.ended is None:
            session.ended = now
        return session

    def observe(self, sample: GpuSampled, now: float) -> None:
        self.advance(now)
        for session in self._sessions.values():
            if session.is_running:
                session.observe(sample, now)

    def advance(self, now: float) -> None:
        """End sessions whose time is up, drop those that ended long ago."""
        for session in self._sessions.values():
            if session.ended is None and now >= session.ends:
                session.ended = session.ends
        ended = [s for s in self._sessions.values() if s.ended is not None]
        ended.sort(key=lambda session: session.ended or 0.0)
        beyond = len(ended) - (MAX_STORED - MAX_RUNNING)
        for place, session in enumerate(ended):
            if place < beyond or now - (session.ended or now) > STORED_SECONDS:
                del self._sessions[session.query.monitoring_id]
