"""Reports an attempt while it runs: its phases, journaled and as events, and its progress."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from schemas.executor.attempts import AttemptPhase, AttemptProgressed, StartExperiment
from services.executor.attempts import transitions
from services.executor.journal.journal import Journal, JournalFull
from shared.benchmarks.progress import overall_fraction
from shared.benchmarks.tools.adapter import LoadPhase, Progress
from shared.clock import utcnow
from shared.logging import log
from shared.messaging.bus import Bus

PROGRESS_INTERVAL_SECONDS: Final = 0.25
_PHASE_OF_LOAD: Final = {
    LoadPhase.WARMING_UP: AttemptPhase.WARMING_UP,
    LoadPhase.MEASURING: AttemptPhase.MEASURING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The varying part of one `AttemptProgressed`."""

    fraction: float
    message: str
    completed_requests: int = 0
    failed_requests: int = 0


@dataclass(slots=True, kw_only=True)
class ProgressReporter:
    """`phase` is what the attempt is in, since `entered_at` (monotonic seconds).

    A change is published within 0.25 s, as long as `publish_changes` runs. Of several ranks only
    the coordinator publishes.
    """

    command: StartExperiment
    journal: Journal
    bus: Bus
    phase: AttemptPhase = AttemptPhase.STARTING
    entered_at: float = field(default_factory=time.monotonic)
    _load: Progress | None = None
    _published: Report | None = None
    _latest: Report | None = None
    _unrecorded: deque[tuple[AttemptPhase, datetime]] = field(default_factory=deque)

    @property
    def _most(self) -> str:
        return "" if self.command.benchmark.load_search is None else "at most "

    @property
    def attempt_id(self) -> UUID:
        return self.command.attempt_id

    def fetch_progressed(self, fraction: float, message: str) -> None:
        """An image is being pulled, or ranks prepared."""
        if self.phase is not AttemptPhase.PULLING:
            self._begin_phase(AttemptPhase.PULLING)
        self._latest = Report(fraction=fraction, message=message)

    def start_progressed(self, message: str) -> None:
        """Report what a started engine waits for, whatever the phase."""
        if self._latest is None or self._latest.message != message:
            self._latest = Report(fraction=0.0, message=message)

    def load_progressed(self, progress: Progress) -> None:
        """Counts of the running benchmark; a level begins with its warm-up."""
        previous, self._load = self._load, progress
        if previous is None or (previous.phase, previous.level_no) != (
            progress.phase,
            progress.level_no,
        ):
            self._begin_phase(_PHASE_OF_LOAD[progress.phase])
        self._latest = Report(
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
                f"{progress.scenario} at {progress.load_text}, "
                f"level {progress.level_no} of {self._most}{progress.levels_total}"
            ),
            completed_requests=progress.completed,
            failed_requests=progress.failed,
        )

    async def enter(self, phase: AttemptPhase) -> None:
        """Record a phase, after those that began before it."""
        self._begin_phase(phase)
        await self._record_phases()

    async def finish_load(self) -> None:
        await self.enter(AttemptPhase.DRAINING)
        if self._load is not None:
            await self._publish(
                Report(
                    fraction=1.0,
                    message=self._latest.message if self._latest is not None else "",
                    completed_requests=self._load.completed,
                    failed_requests=self._load.failed,
                )
            )

    async def publish_changes(self) -> None:
        """Record phases and publish progress as they change, for ever."""
        while True:
            await self._record_phases()
            if self._latest is not None and self._latest is not self._published:
                self._published = self._latest
                await self._publish(self._latest)
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)

    def _begin_phase(self, phase: AttemptPhase) -> None:
        self.phase = phase
        self.entered_at = time.monotonic()
        self._unrecorded.append((phase, utcnow()))

    async def _record_phases(self) -> None:
        # Popped before the journal has it: a cancelled caller does not undo the transaction.
        while self._unrecorded:
            phase, began_at = self._unrecorded.popleft()
            try:
                await self.journal.transact(
                    partial(
                        transitions.record_phase,
                        attempt_id=self.attempt_id,
                        phase=phase,
                        now=began_at,
                    )
                )
            except JournalFull as error:
                # The attempt goes on; only this phase's event and duration are missing.
                log.warning("phase_unrecorded", phase=phase, error=str(error))

    async def _publish(self, report: Report) -> None:
        if self.command.gang is not None:
            return
        await self.bus.publish_live(
            AttemptProgressed(
                observed_at=utcnow(),
                executor_id=self.command.executor_id,
                experiment_id=self.command.experiment_id,
                attempt_id=self.attempt_id,
                task_id=self.command.task_id,
                phase=self.phase,
                fraction=report.fraction,
                message=report.message,
                completed_requests=report.completed_requests,
                failed_requests=report.failed_requests,
            )
        )
