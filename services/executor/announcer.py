"""What an attempt tells while it runs: its phases, journaled and as events, and its progress."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.executor import AttemptPhase, AttemptProgressed, StartExperiment
from services.executor import facts
from services.executor.journal import Journal
from shared.benchmarks.adapter import LoadPhase, Progress
from shared.benchmarks.progress import overall_fraction
from shared.bus import Bus
from shared.clock import utcnow

PROGRESS_INTERVAL_SECONDS: Final = 0.25
_PHASE_OF_LOAD: Final = {
    LoadPhase.WARMING_UP: AttemptPhase.WARMING_UP,
    LoadPhase.MEASURING: AttemptPhase.MEASURING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One message of progress."""

    fraction: float
    message: str
    completed_requests: int = 0
    failed_requests: int = 0


@dataclass(slots=True, kw_only=True)
class Announcer:
    """`phase` is what the attempt is in, since `entered_at` (monotonic seconds).

    What is noted is told within 0.25 s, as long as `keep_telling` runs. Of several ranks only the
    coordinator's is told.
    """

    command: StartExperiment
    journal: Journal
    bus: Bus
    phase: AttemptPhase = AttemptPhase.STARTING
    entered_at: float = field(default_factory=time.monotonic)
    _load: Progress | None = None
    _told: Told | None = None
    _noted: Told | None = None
    _unrecorded: deque[tuple[AttemptPhase, datetime]] = field(default_factory=deque)

    @property
    def attempt_id(self) -> UUID:
        return self.command.attempt_id

    def note_fetch(self, fraction: float, message: str) -> None:
        """What starting needs is being fetched."""
        if self.phase is not AttemptPhase.PULLING:
            self._note_phase(AttemptPhase.PULLING)
        self._noted = Told(fraction=fraction, message=message)

    def note_load(self, progress: Progress) -> None:
        """The benchmark goes on; a level begins with its warm-up."""
        before, self._load = self._load, progress
        if before is None or (before.phase, before.level_no) != (progress.phase, progress.level_no):
            self._note_phase(_PHASE_OF_LOAD[progress.phase])
        self._noted = Told(
            fraction=overall_fraction(
                level_no=progress.level_no,
                levels_total=progress.levels_total,
                done_requests=progress.completed + progress.failed,
                total_requests=progress.total,
                elapsed_seconds=progress.elapsed_seconds,
                level_limit_seconds=self.command.benchmark.max_time_per_level_seconds,
                is_measuring=progress.phase is LoadPhase.MEASURING,
            ),
            message=(
                f"{progress.scenario} at concurrency {progress.num_concurrency}, "
                f"level {progress.level_no} of {progress.levels_total}"
            ),
            completed_requests=progress.completed,
            failed_requests=progress.failed,
        )

    async def enter(self, phase: AttemptPhase) -> None:
        """Record a phase, after those that were noted before it."""
        self._note_phase(phase)
        await self._record_phases()

    async def finish_load(self) -> None:
        """The benchmark is over: all of it is told."""
        await self.enter(AttemptPhase.DRAINING)
        if self._load is not None:
            await self._publish(
                Told(
                    fraction=1.0,
                    message=self._noted.message if self._noted is not None else "",
                    completed_requests=self._load.completed,
                    failed_requests=self._load.failed,
                )
            )

    async def keep_telling(self) -> None:
        """Record and publish what was noted, for ever."""
        while True:
            await self._record_phases()
            if self._noted is not None and self._noted is not self._told:
                self._told = self._noted
                await self._publish(self._noted)
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)

    def _note_phase(self, phase: AttemptPhase) -> None:
        self.phase = phase
        self.entered_at = time.monotonic()
        self._unrecorded.append((phase, utcnow()))

    async def _record_phases(self) -> None:
        # Taken off before the journal has it: a caller that is cancelled does not take it back.
        while self._unrecorded:
            phase, began_at = self._unrecorded.popleft()
            await self.journal.transact(
                lambda connection, phase=phase, began_at=began_at: facts.record_phase(  # type: ignore[misc]
                    connection, self.attempt_id, phase, began_at
                )
            )

    async def _publish(self, told: Told) -> None:
        if self.command.gang is not None:
            return
        await self.bus.publish_live(
            AttemptProgressed(
                observed_at=utcnow(),
                experiment_id=self.command.experiment_id,
                attempt_id=self.attempt_id,
                task_id=self.command.task_id,
                phase=self.phase,
                fraction=told.fraction,
                message=told.message,
                completed_requests=told.completed_requests,
                failed_requests=told.failed_requests,
            )
        )
