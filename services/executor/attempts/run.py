"""One attempt from its acceptance to its confirmed end."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

from msgspec.structs import replace

from schemas.base import Live
from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhase,
    FailureKind,
    StartExperiment,
)
from schemas.executor.ranks import RankState, RankView
from schemas.task.benchmark import BenchmarkResult
from services.executor.attempts import transitions
from services.executor.attempts.attempt_engine import AttemptEngine
from services.executor.attempts.disk_room import require_room
from services.executor.attempts.engine_meter import EngineMeter
from services.executor.attempts.kept_engine import KeptEngine
from services.executor.attempts.lease_keeper import LeaseKeeper
from services.executor.attempts.load import fetch_for_load, probe_and_load
from services.executor.attempts.power_limit import limit_power
from services.executor.attempts.progress import ProgressReporter
from services.executor.attempts.secrets import open_secrets
from services.executor.domain.deadlines import phase_limits, phase_timed_out, rank_limits
from services.executor.domain.gang import rank_of
from services.executor.domain.verdict import (
    AttemptFailed,
    Verdict,
    failure,
    failure_verdict,
    judge,
    lease_lost,
    on_full_disk,
    timeout_verdict,
)
from services.executor.gangs.ranks import Ranks
from services.executor.guard.client import LeaseGuard
from services.executor.journal.journal import Journal, JournalFull
from services.executor.logs.live_stream import LogStreamer
from services.executor.runtimes.runtime import (
    EngineRuntime,
    Labels,
)
from services.executor.settings import ExecutorSettings
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.clock import utcnow
from shared.disk import reports_no_room, room_at
from shared.load_files.preparation import NOTHING_FETCHED, FetchedFiles
from shared.logging import log
from shared.messaging.bus import Bus
from shared.paths import make_directory
from shared.waiting import cancel_and_wait

CHECK_SECONDS: Final = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class AttemptRun:
    """Runs one journaled attempt. `stop` may be called at any time; the first verdict counts.

    It goes on with the engine that was `kept` up, if there is one; an engine that it leaves up
    itself is passed to `on_left`.
    """

    command: StartExperiment
    labels: Labels
    runtime: EngineRuntime
    ranks: Ranks
    guard: LeaseGuard
    journal: Journal
    bus: Bus
    settings: ExecutorSettings
    kept: KeptEngine | None = None
    on_left: Callable[[KeptEngine], None] = lambda _: None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _accepted_at: float = field(default_factory=time.monotonic)
    _keeper: LeaseKeeper = field(init=False)
    _progress: ProgressReporter = field(init=False)
    _attempt_engine: AttemptEngine = field(init=False)
    _stopped: asyncio.Future[Verdict] = field(init=False)
    _files: FetchedFiles = NOTHING_FETCHED
    _over_at: float | None = None
    _verdict: Verdict | None = None

    def __post_init__(self) -> None:
        self._stopped = asyncio.get_running_loop().create_future()
        self._keeper = LeaseKeeper(
            command=self.command,
            bus=self.bus,
            on_confirmed=lambda lease: self.guard.hold(self.labels, lease.kill_at),
        )
        self._progress = ProgressReporter(command=self.command, journal=self.journal, bus=self.bus)
        if self.kept is not None:
            self._keeper = self.kept.up.keeper
        self._attempt_engine = AttemptEngine(
            command=self.command,
            labels=self.labels,
            runtime=self.runtime,
            guard=self.guard,
            journal=self.journal,
            bus=self.bus,
            settings=self.settings,
            progress=self._progress,
            keeper=self._keeper,
            up=self.kept.up if self.kept is not None else None,
        )

    @property
    def attempt_id(self) -> UUID:
        return self.command.attempt_id

    @property
    def phase(self) -> AttemptPhase:
        return self._progress.phase

    def stop(self, verdict: Verdict) -> None:
        """Have the attempt end with this verdict, unless an earlier call gave another."""
        if not self._stopped.done():
            self._stopped.set_result(verdict)

    def rank_view(self, address: str | None) -> RankView:
        over_at = self._over_at if self._verdict is not None else None
        return RankView(
            executor_id=self.command.executor_id,
            attempt_id=self.attempt_id,
            rank=rank_of(self.command),
            state=self._rank_state,
            failure=self._verdict.failure if self._verdict is not None else None,
            over_seconds=time.monotonic() - over_at if over_at is not None else None,
            address=address,
        )

    @property
    def awaits_start(self) -> bool:
        """Return whether this attempt is a member that waits for `StartRank`, or got it."""
        return self._is_member and self._rank_state in {RankState.READY, RankState.RUNNING}

    @property
    def _rank_state(self) -> RankState:
        # A coordinator still looks for the first failure then; a member tells only its verdict.
        is_over = self._over_at is not None and not self._is_member
        if is_over or self._verdict is not None:
            return RankState.ENDING
        if self._attempt_engine.engine is not None:
            return RankState.RUNNING
        return RankState.READY if self.ranks.is_ready else RankState.PREPARING

    async def run(self) -> None:
        """Run the attempt to its end; return once the journal has the outcome."""
        lease = asyncio.create_task(self._keeper.until_lost(), name="keep_lease")
        streamer = LogStreamer(
            command=self.command, engine_log=self._attempt_engine.log, publish=self._publish
        )
        keeping = (
            asyncio.create_task(self._attempt_engine.log.keep_bounded(), name="keep_log"),
            asyncio.create_task(streamer.stream(), name="stream_log"),
        )
        try:
            verdict = self._with_phase(await self._until_verdict(lease))
            self._verdict = verdict = replace(verdict, engine_use=self._attempt_engine.use)
            left_engine = (
                None if self._stopped.done() else await self._attempt_engine.leave(verdict)
            )
            if left_engine is None:
                await self._tear_down()
            else:
                self.on_left(left_engine)
        finally:
            await cancel_and_wait(lease, *keeping)
        await streamer.finish()
        outcome: AttemptOutcome | None = verdict.outcome
        if left_engine is None:
            self.guard.release(self.labels.reservation_id)
            outcome = await self.journal.transact_when_possible(
                lambda connection: transitions.record_finish(
                    connection, self.attempt_id, verdict, utcnow()
                )
            )
        self.ended.set()
        reason = verdict.failure.message if verdict.failure is not None else None
        log.info(
            "attempt_finished", attempt_id=str(self.attempt_id), outcome=outcome, failure=reason
        )

    async def _until_verdict(self, lease: asyncio.Task[str]) -> Verdict:
        """Run until there is a verdict. Of several counts the first in this order: a stop, a lease
        past its `stop_at`, this rank's work, another rank, a lost lease, a broken report, lateness.
        """
        work = asyncio.create_task(self._start_and_measure(), name="attempt_work")
        reporting = asyncio.create_task(self._progress.publish_changes(), name="report_progress")
        watching = asyncio.create_task(self._watch_ranks(), name="watch_ranks")
        deadline = asyncio.create_task(self._until_deadline(), name="await_deadline")
        tasks: Sequence[asyncio.Task[Any]] = (work, reporting, watching, deadline)
        try:
            await asyncio.wait((*tasks, lease, self._stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._over_at = over_at = time.monotonic()
            await cancel_and_wait(*tasks)
        if self._stopped.done():
            return self._stopped.result()
        if time.monotonic() >= self._keeper.lease.stop_at:
            # Whatever happened to the engine meanwhile followed from the lost lease.
            return self._too_late(lease)
        if not work.cancelled():
            own_verdict = self._judge(work)
            is_good = own_verdict.outcome is AttemptOutcome.SUCCEEDED
            return own_verdict if is_good else await self.ranks.cause(own_verdict, over_at)
        if not watching.cancelled():
            error = watching.exception()
            return watching.result() if error is None else self._broken(error)
        if lease.done():
            return self._too_late(lease)
        broken = reporting.exception() if not reporting.cancelled() else None
        if broken is None and not deadline.cancelled():
            return deadline.result()
        return self._broken(broken or RuntimeError("its work was cancelled from inside"))

    def _too_late(self, lease: asyncio.Task[str]) -> Verdict:
        if not lease.done():
            return lease_lost("the lease was not renewed in time: the executor was held up")
        error = lease.exception()
        return lease_lost(lease.result()) if error is None else self._broken(error)

    async def _watch_ranks(self) -> Verdict:
        await self._keeper.confirmed.wait()
        return await self.ranks.watch()

    async def _until_deadline(self) -> Verdict:
        """Wait until the attempt, or the phase it is in, has taken too long."""
        ends_at = self._accepted_at + self.command.timeout_seconds
        limits = phase_limits(self.settings.phase_limits, self.command.benchmark)
        if self._is_member:
            limits = rank_limits(self.settings.phase_limits)
        while True:
            phase = self._progress.phase
            phase_ends_at = self._progress.entered_at + limits.get(phase, math.inf)
            left_seconds = min(ends_at, phase_ends_at) - time.monotonic()
            if left_seconds <= 0:
                if phase_ends_at < ends_at:
                    return phase_timed_out(phase, limits[phase])
                return timeout_verdict(self.command.timeout_seconds)
            await asyncio.sleep(min(left_seconds, CHECK_SECONDS))

    def _judge(self, work: asyncio.Task[BenchmarkResult]) -> Verdict:
        error = work.exception()
        if error is None:
            return judge(work.result())
        if isinstance(error, AttemptFailed):
            room = room_at(self._directory)
            cause = on_full_disk(error.failure, str(room)) if room.is_full else error.failure
            return failure_verdict(cause)
        return self._broken(error)

    def _broken(self, error: BaseException) -> Verdict:
        if isinstance(error, JournalFull) or reports_no_room(error):
            return failure_verdict(failure(FailureKind.DISK_FULL, str(error)))
        log.error("attempt_broken", attempt_id=str(self.attempt_id), exc_info=error)
        return failure_verdict(failure(FailureKind.INTERNAL, f"internal error: {error!r}"))

    def _with_phase(self, verdict: Verdict) -> Verdict:
        if verdict.failure is None or verdict.failure.phase is not None:
            return verdict
        return replace(verdict, failure=replace(verdict.failure, phase=self._progress.phase))

    async def _start_and_measure(self) -> BenchmarkResult:
        await self._keeper.confirmed.wait()
        await self.journal.transact(
            lambda connection: transitions.record_start(connection, self.attempt_id, utcnow())
        )
        make_directory(self._directory, 0o700)
        await require_room(self.journal, self._directory)
        if self.kept is not None:
            self._files = await self._fetch_files()
            self._attempt_engine.secrets = await open_secrets(self.command, self.bus)
            if base_url := await self._attempt_engine.go_on():
                return await self._measure(base_url)
        await self.runtime.fetch(self.command, self._progress.fetch_progressed)
        self._files = await self._fetch_files()
        self._attempt_engine.rank_parameters = await self.ranks.rendezvous(
            self._progress.fetch_progressed
        )
        await self._progress.enter(AttemptPhase.STARTING)
        await limit_power(self.command, self.bus)
        self._attempt_engine.secrets = await open_secrets(self.command, self.bus)
        if self._is_member:
            await self._serve_rank()
        return await self._measure(await self._attempt_engine.start(self._stopped.done))

    async def _fetch_files(self) -> FetchedFiles:
        places = self.settings.file_places.with_uploads(self.bus)
        return await fetch_for_load(self.command, places)

    @property
    def _is_member(self) -> bool:
        """Return whether another executor coordinates this rank; its engine answers no HTTP."""
        return self.command.gang is not None

    async def _serve_rank(self) -> NoReturn:
        engine = await self._attempt_engine.start_rank()
        raise AttemptFailed(await engine.until_ended())

    @property
    def _directory(self) -> Path:
        return self.settings.attempt_dir(self.attempt_id)

    async def _measure(self, base_url: str) -> BenchmarkResult:
        engine = self._attempt_engine.engine
        if engine is None:
            raise RuntimeError("measuring without an engine")
        certificate = self._attempt_engine.certificate
        load = asyncio.create_task(
            probe_and_load(
                self.command,
                base_url,
                self._progress,
                roots=self.settings.model_root_paths,
                directory=self._directory / "benchmark",
                secrets=self._attempt_engine.secrets,
                certificate=certificate,
                fetched=self._files,
            )
        )
        exited = asyncio.create_task(engine.until_ended())
        meter = EngineMeter(command=self.command, bus=self.bus, progress=self._progress)
        metering = asyncio.create_task(meter.run(base_url, certificate), name="meter_engine")
        try:
            await asyncio.wait({load, exited}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise AttemptFailed(exited.result())
            result = load.result()
        except BenchmarkFailed as error:
            raise AttemptFailed.of(FailureKind.BENCHMARK_FAILED, str(error)) from error
        finally:
            await cancel_and_wait(load, exited, metering)
        await self._progress.finish_load()
        return result

    async def _publish(self, message: Live) -> None:
        # The lines of several ranks would mingle: only the coordinator's are published.
        if not self._is_member:
            await self.bus.publish_live(message)

    async def _tear_down(self) -> None:
        stopping = asyncio.gather(self.ranks.end_others(), self._attempt_engine.end())
        try:
            if self._attempt_engine.engine is not None:
                await self._progress.enter(AttemptPhase.TEARING_DOWN)
        finally:
            await stopping
