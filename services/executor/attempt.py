"""One attempt from its acceptance to its confirmed end."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from schemas.benchmark import BenchmarkResult
from schemas.errors import Accepted, Refused
from schemas.executor import (
    AttemptPhase,
    AttemptProgressed,
    Failure,
    FailureKind,
    StartExperiment,
)
from schemas.scheduler import RenewReservation
from services.executor import facts, store
from services.executor.domain.lease import Lease
from services.executor.domain.verdict import (
    AttemptFailed,
    Verdict,
    failed,
    judge,
    lease_lost,
    timed_out,
)
from services.executor.engine_command import command_for
from services.executor.engine_process import (
    EngineProcess,
    PortTaken,
    engine_environment,
    free_port,
)
from services.executor.journal import Journal
from services.executor.processes import WorkloadLabel
from services.executor.settings import ExecutorSettings
from shared.benchmarks.adapter import BenchmarkFailed, LoadPhase, Progress, Target
from shared.benchmarks.progress import overall_fraction
from shared.benchmarks.tools import run_benchmark
from shared.bus import Bus
from shared.child_process import rotate_log
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.logging import log

T = TypeVar("T")

PORT_TRIES: Final = 3
PROGRESS_INTERVAL_SECONDS: Final = 0.25
CANCEL_AGAIN_SECONDS: Final = 0.5
_PHASE_OF_LOAD: Final = {
    LoadPhase.WARMING_UP: AttemptPhase.WARMING_UP,
    LoadPhase.MEASURING: AttemptPhase.MEASURING,
}


@dataclass(slots=True, kw_only=True, eq=False)
class AttemptRun:
    """Runs one journaled attempt. `stop` may be called at any time; the first verdict counts."""

    command: StartExperiment
    journal: Journal
    bus: Bus
    settings: ExecutorSettings
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _accepted_at: float = field(default_factory=time.monotonic)
    _lease: Lease = field(init=False)
    _lease_confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: asyncio.Future[Verdict] = field(init=False)
    _engine: EngineProcess | None = None
    _phase: AttemptPhase = AttemptPhase.STARTING
    _progress: Progress | None = None
    _unrecorded_phases: deque[tuple[AttemptPhase, datetime]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._stopped = asyncio.get_running_loop().create_future()
        self._lease = Lease(
            ttl_seconds=self.command.lease_ttl_seconds, confirmed_at=self._accepted_at
        )

    @property
    def attempt_id(self) -> UUID:
        return self.command.attempt_id

    @property
    def label(self) -> WorkloadLabel:
        return WorkloadLabel(
            reservation_id=self.command.reservation_id,
            installation_id=self.settings.installation_id,
        )

    @property
    def phase(self) -> AttemptPhase:
        return self._phase

    def stop(self, verdict: Verdict) -> None:
        """Have the attempt end with this verdict, unless it has one already."""
        if not self._stopped.done():
            self._stopped.set_result(verdict)

    async def run(self) -> None:
        """Run to the end. Raises only if the journal cannot be written."""
        lease = asyncio.create_task(self._keep_lease(), name="keep_lease")
        try:
            verdict = await self._verdict(lease)
            await self._tear_down()
        finally:
            await _cancelled(lease)
        outcome = await self.journal.transact(
            lambda connection: facts.record_finish(connection, self.attempt_id, verdict, utcnow())
        )
        self.ended.set()
        failure = verdict.failure
        log.info(
            "attempt_finished",
            attempt_id=str(self.attempt_id),
            outcome=outcome,
            failure=failure.message if failure is not None else None,
        )

    async def _verdict(self, lease: asyncio.Task[None]) -> Verdict:
        work = asyncio.create_task(self._work(), name="attempt_work")
        left_seconds = self._accepted_at + self.command.timeout_seconds - time.monotonic()
        try:
            waited: set[asyncio.Future[Any]] = {work, self._stopped, lease}
            await asyncio.wait(
                waited,
                timeout=max(0.0, left_seconds),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            await _cancelled(work)
        if self._stopped.done():
            return self._stopped.result()
        if work.cancelled():
            return (
                timed_out(self.command.timeout_seconds) if not lease.done() else self._broken(lease)
            )
        return self._judge(work)

    def _judge(self, work: asyncio.Task[BenchmarkResult]) -> Verdict:
        error = work.exception()
        if error is None:
            return judge(work.result(), min_success_rate=self.settings.min_success_rate)
        if isinstance(error, AttemptFailed):
            return failed(error.failure)
        return self._broken(work)

    def _broken(self, task: asyncio.Task[Any]) -> Verdict:
        error = task.exception()
        log.error("attempt_broken", attempt_id=str(self.attempt_id), exc_info=error)
        return failed(Failure(kind=FailureKind.INTERNAL, message=f"internal error: {error!r}"))

    async def _work(self) -> BenchmarkResult:
        await self._lease_confirmed.wait()
        await self.journal.transact(
            lambda connection: facts.record_start(connection, self.attempt_id, utcnow())
        )
        base_url = await self._start_engine()
        return await self._measure(base_url)

    async def _start_engine(self) -> str:
        for is_last_try in (*[False] * (PORT_TRIES - 1), True):
            engine = await self._spawn_engine()
            await self._enter(AttemptPhase.LOADING)
            try:
                return await engine.until_ready(self.settings.readiness_timeout_seconds)
            except PortTaken:
                await engine.stop(0.0)
                if is_last_try:
                    break
        raise AttemptFailed(
            Failure(
                kind=FailureKind.ENGINE_EXITED,
                message=f"other processes took {PORT_TRIES} ports that were free a moment before",
            )
        )

    async def _spawn_engine(self) -> EngineProcess:
        command = command_for(self.command, port=0, settings=self.settings)
        if not command.announces_address:
            command = command_for(self.command, port=free_port(), settings=self.settings)
        port = 0 if command.announces_address else int(command.argv[-1])
        if self._stopped.done():
            raise AttemptFailed(Failure(kind=FailureKind.CANCELLED, message="stopped before start"))
        engine = EngineProcess.spawn(
            command,
            engine_environment(self.command, self.label, command.env),
            self.label,
            directory=self.settings.attempt_dir(self.attempt_id),
            port=port,
        )
        self._engine = engine
        await self.journal.transact(
            lambda connection: store.record_process(
                connection, self.attempt_id, engine.mark, engine.port
            )
        )
        return engine

    async def _measure(self, base_url: str) -> BenchmarkResult:
        engine = self._engine
        if engine is None:
            raise RuntimeError("measuring without an engine")
        load = asyncio.create_task(
            run_benchmark(
                self.command.benchmark,
                Target(base_url=base_url, model_name=engine.command.served_model_name),
                directory=self.settings.attempt_dir(self.attempt_id) / "benchmark",
                on_progress=self._note_progress,
            )
        )
        exited = asyncio.create_task(engine.until_ended())
        announcing = asyncio.create_task(self._announce())
        try:
            await asyncio.wait({load, exited, announcing}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise AttemptFailed(exited.result())
            if announcing.done():
                announcing.result()
            result = load.result()
        except BenchmarkFailed as error:
            raise AttemptFailed(
                Failure(kind=FailureKind.BENCHMARK_FAILED, message=str(error))
            ) from error
        finally:
            await _cancelled(load, exited, announcing)
            await self._record_phases()
        await self._enter(AttemptPhase.DRAINING)
        await self._publish_progress()
        return result

    async def _tear_down(self) -> None:
        engine = self._engine
        if engine is None:
            return
        grace_seconds = self._lease.stop_grace_seconds(self.settings.stop_grace_seconds)
        stopping = asyncio.create_task(engine.stop(grace_seconds))
        try:
            await self._enter(AttemptPhase.TEARING_DOWN)
        finally:
            await stopping

    async def _keep_lease(self) -> None:
        activated = False
        while True:
            now = time.monotonic()
            if now >= self._lease.stop_at:
                self.stop(
                    lease_lost(
                        f"the lease was not renewed for {now - self._lease.confirmed_at:.1f} s"
                    )
                )
                return
            if activated and now < self._lease.renew_at:
                await asyncio.sleep(self._lease.renew_at - now)
                continue
            reply = await self._renew(activate=not activated)
            if isinstance(reply, Accepted):
                activated = True
                self._lease = Lease(
                    ttl_seconds=reply.lease_ttl_seconds or self._lease.ttl_seconds,
                    confirmed_at=now,
                )
                self._lease_confirmed.set()
            elif reply is not None and not reply.retryable:
                self.stop(lease_lost(f"the scheduler refused the lease: {reply.message}"))
                return
            else:
                left_seconds = max(0.0, self._lease.stop_at - time.monotonic())
                await asyncio.sleep(min(self._lease.retry_seconds, left_seconds))

    async def _renew(self, *, activate: bool) -> Accepted | Refused | None:
        """None if nobody answered."""
        renewal = RenewReservation(
            command_id=new_id(),
            reservation_id=self.command.reservation_id,
            epoch=self.command.epoch,
            activate=activate,
        )
        try:
            return await self.bus.request(
                renewal,
                timeout_seconds=self._lease.request_timeout_seconds(time.monotonic()),
            )
        except UnavailableError as error:
            log.warning("lease_unconfirmed", attempt_id=str(self.attempt_id), error=str(error))
            return None

    def _note_progress(self, progress: Progress) -> None:
        phase = _PHASE_OF_LOAD[progress.phase]
        if self._progress is None or self._progress.phase is not progress.phase:
            self._unrecorded_phases.append((phase, utcnow()))
        self._progress = progress

    async def _announce(self) -> None:
        published: Progress | None = None
        limit_bytes = self.settings.engine_log_limit_mb << 20
        while True:
            await self._record_phases()
            if self._progress is not published:
                published = self._progress
                await self._publish_progress()
            if self._engine is not None:
                await asyncio.to_thread(rotate_log, self._engine.log_path, limit_bytes)
            await asyncio.sleep(PROGRESS_INTERVAL_SECONDS)

    async def _record_phases(self) -> None:
        while self._unrecorded_phases:
            phase, began_at = self._unrecorded_phases[0]
            await self._enter(phase, began_at)
            self._unrecorded_phases.popleft()

    async def _enter(self, phase: AttemptPhase, began_at: datetime | None = None) -> None:
        at = began_at or utcnow()
        self._phase = phase
        await self.journal.transact(
            lambda connection: facts.record_phase(connection, self.attempt_id, phase, at)
        )

    async def _publish_progress(self) -> None:
        progress = self._progress
        if progress is None:
            return
        fraction = overall_fraction(
            level_no=progress.level_no,
            levels_total=progress.levels_total,
            done_requests=progress.completed + progress.failed,
            total_requests=progress.total,
            elapsed_seconds=progress.elapsed_seconds,
            level_limit_seconds=self.command.benchmark.max_time_per_level_seconds,
            is_measuring=progress.phase is LoadPhase.MEASURING,
        )
        await self.bus.publish_live(
            AttemptProgressed(
                observed_at=utcnow(),
                experiment_id=self.command.experiment_id,
                attempt_id=self.attempt_id,
                task_id=self.command.task_id,
                phase=self._phase,
                fraction=1.0 if self._phase is AttemptPhase.DRAINING else fraction,
                message=(
                    f"{progress.scenario} at concurrency {progress.num_concurrency}, "
                    f"level {progress.level_no} of {progress.levels_total}"
                ),
                completed_requests=progress.completed,
                failed_requests=progress.failed,
            )
        )


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; what they raise stays with them.

    Asked again, because `asyncio.wait_for` of Python 3.11, which nats-py uses, forgets a
    cancellation that comes together with its result. Once is enough from Python 3.12 on.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at, or asyncio complains that nobody did
