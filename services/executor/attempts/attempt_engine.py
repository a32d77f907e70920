"""The engine of one attempt: started for it, or taken over from the attempt before."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, TypeVar
from uuid import UUID

from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhase,
    EngineUse,
    FailureKind,
    StartExperiment,
)
from services.executor.attempts import transitions
from services.executor.attempts.compile_cache import AttemptCache
from services.executor.attempts.kept_engine import KeptEngine, UpEngine, has_rival
from services.executor.attempts.lease_keeper import LeaseKeeper
from services.executor.attempts.progress import ProgressReporter
from services.executor.attempts.state_reset import StateNotReset, reset_state
from services.executor.domain.keeping import keep_seconds, may_leave_engine
from services.executor.domain.verdict import AttemptFailed, Verdict
from services.executor.engines.compile_cache import CompileCaches
from services.executor.guard.client import LeaseGuard
from services.executor.host.processes import ProcessMark
from services.executor.journal import store
from services.executor.journal.journal import Journal, JournalFull
from services.executor.logs.engine_log import LOG_NAME, EngineLog
from services.executor.runtimes.runtime import (
    EngineRuntime,
    Labels,
    Launch,
    PortTaken,
    RunningEngine,
    certificate_in,
)
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.logging import log
from shared.messaging.bus import Bus

PORT_TRIES: Final = 3

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class AttemptEngine:
    """`up` is the engine once it answers, from the beginning where it was kept up; `use` is then
    what became of it. `engine` has to be ended, whatever happened.
    """

    command: StartExperiment
    labels: Labels
    runtime: EngineRuntime
    guard: LeaseGuard
    journal: Journal
    bus: Bus
    settings: ExecutorSettings
    progress: ProgressReporter
    keeper: LeaseKeeper
    up: UpEngine | None = None
    use: EngineUse | None = None
    engine: RunningEngine | None = None
    rank_parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    log: EngineLog = field(init=False)
    _cache: AttemptCache = field(init=False)

    def __post_init__(self) -> None:
        if self.up is None:
            limit_bytes = self.settings.engine_log_limit_mb << 20
            self.log = EngineLog(self._directory / LOG_NAME, limit_bytes)
            self._cache = self._make_cache()
        else:
            self.engine, self.log, self._cache = self.up.engine, self.up.log, self.up.cache

    @property
    def certificate(self) -> Path | None:
        """The one certificate that the engine may show."""
        return certificate_in(self.up.directory if self.up is not None else self._directory)

    async def go_on(self) -> str:
        """Return the address of the engine that was kept up, its state reset; empty where that
        failed and the engine was ended, so that another is to be started.
        """
        up = self.up
        if up is None:
            return ""
        self.log.link_from(self._directory / LOG_NAME)
        try:
            reset = await reset_state(self.command.engine.engine, up.base_url, self.certificate)
        except StateNotReset as error:
            self.use = EngineUse(is_kept=False, fresh_because=str(error))
            log.warning(
                "kept_engine_not_reset",
                attempt_id=str(self.command.attempt_id),
                reason=str(error),
            )
            await self.end()
            self.up, self.engine, self._cache = None, None, self._make_cache()
            return ""
        self.use = EngineUse(is_kept=True, reset=reset)
        return up.base_url

    async def start(self, is_stopped: Callable[[], bool]) -> str:
        """Start it and return its address once it answers. Raises AttemptFailed."""
        began_at = time.monotonic()
        base_url, engine = await self._start(is_stopped)
        self.up = UpEngine(
            engine=engine,
            labels=self.labels,
            base_url=base_url,
            directory=self._directory,
            log=self.log,
            cache=self._cache,
            keeper=self.keeper,
            start_seconds=time.monotonic() - began_at,
        )
        return base_url

    async def start_rank(self) -> RunningEngine:
        """Start it as one rank of several, which answers no HTTP."""
        self.engine = engine = await self.runtime.start(self._launch)
        await self.progress.enter(AttemptPhase.LOADING)
        return engine

    async def leave(self, verdict: Verdict) -> KeptEngine | None:
        """Leave it up for the next run and record the outcome; None: it is to be ended."""
        up, wanted_seconds = self.up, self.command.keep_seconds
        if verdict.outcome is not AttemptOutcome.SUCCEEDED or up is None or wanted_seconds is None:
            return None
        if not may_leave_engine(self.command) or await has_rival(
            self.bus, self.command.executor_id
        ):
            return None
        kept_engine = KeptEngine(
            command=self.command,
            up=up,
            seconds=keep_seconds(wanted_seconds, up.start_seconds),
            runtime=self.runtime,
            guard=self.guard,
            journal=self.journal,
            bus=self.bus,
            stop_grace_seconds=self.settings.stop_grace_seconds,
        )
        try:
            is_left = await self.journal.transact(
                lambda connection: transitions.record_kept(
                    connection, self.command.attempt_id, verdict, utcnow(), kept_engine.kept_until
                )
            )
        except JournalFull:
            return None
        return kept_engine if is_left else None

    async def end(self) -> None:
        """Return once nothing of it runs."""
        if self.engine is not None:
            lease = self.keeper.lease
            await self.engine.stop(lease.stop_grace_seconds(self.settings.stop_grace_seconds))
        # A start that was cut off may have made something that only the labels name.
        await self.runtime.end(self.labels)
        await self._cache.release()

    async def _start(self, is_stopped: Callable[[], bool]) -> tuple[str, RunningEngine]:
        # The other ranks do not survive a second start of this one.
        tries = 1 if self.rank_parameters else PORT_TRIES
        for _ in range(tries):
            if is_stopped():
                raise AttemptFailed.of(FailureKind.CANCELLED, "stopped before start")
            self.engine = engine = await self.runtime.start(self._launch)
            await self.progress.enter(AttemptPhase.LOADING)
            try:
                base_url = await engine.until_ready(self.settings.readiness_timeout_seconds)
                self._cache.is_good = True
                return base_url, engine
            except PortTaken:
                await engine.stop(0.0)
                self.engine = None
        message = f"other programs took every port that was free just before ({tries} tried)"
        raise AttemptFailed.of(FailureKind.PORT_TAKEN, message)

    def _make_cache(self) -> AttemptCache:
        return AttemptCache(command=self.command, caches=CompileCaches.of(self.settings))

    @property
    def _directory(self) -> Path:
        return self.settings.attempt_dir(self.command.attempt_id)

    @property
    def _launch(self) -> Launch:
        async def remember(mark: ProcessMark) -> None:
            self.guard.add_mark(self.labels.reservation_id, mark)
            try:
                await self.journal.transact(
                    lambda connection: store.record_process(
                        connection, self.command.attempt_id, mark
                    )
                )
            except JournalFull as error:
                # The guard has the mark, and its label names the process.
                log.warning("process_unrecorded", pid=mark.pid, error=str(error))

        return Launch(
            command=self.command,
            labels=self.labels,
            directory=self._directory,
            log=self.log,
            served_model_name=self.command.benchmark.model_name or self.command.engine.model,
            remember=remember,
            rank_parameters=self.rank_parameters,
            secrets=self.secrets,
            report=self.progress.start_progressed,
            take_cache=self._cache.take,
            bound=lambda pod: self._record(store.record_pod, pod),
            image_known=lambda digest: self._record(store.record_image, digest),
        )

    async def _record(self, record: Callable[[Connection, UUID, T], None], value: T) -> None:
        try:
            await self.journal.transact(lambda db: record(db, self.command.attempt_id, value))
        except JournalFull as error:
            # The attempt goes on without this fact on record.
            log.warning("attempt_fact_unrecorded", found=str(value), error=str(error))
