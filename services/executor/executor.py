"""The executor of one node: its attempts, its fences, and what an earlier life left behind."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import (
    AttemptPhase,
    ExecutorReported,
    Runtime,
    StartExperiment,
)
from schemas.executor.running import ListRunning, RunningAttempt, RunningAttempts
from services.executor.attempts import transitions
from services.executor.attempts.kept_engine import KeptEngine
from services.executor.attempts.kept_engines import KeptEngines
from services.executor.attempts.old_directories import remove_older
from services.executor.attempts.run import AttemptRun
from services.executor.domain.verdict import (
    cancellation_verdict,
    executor_restarted,
    executor_stopped,
    lease_lost,
)
from services.executor.engines.compile_cache import CompileCaches
from services.executor.engines.model_configs import HUB_CACHES, ModelConfigs, model_directories
from services.executor.gangs.ranks import ranks_of
from services.executor.guard.client import LeaseGuard
from services.executor.host.addresses import engine_address
from services.executor.journal import kept_rows, outbox_rows, store
from services.executor.journal.journal import Journal, JournalFull
from services.executor.journal.outbox import Outbox
from services.executor.journal.store import AttemptRecord
from services.executor.offers import list_offers
from services.executor.runtimes.engine_process import own_variables
from services.executor.runtimes.runtime import Labels
from services.executor.settings import ExecutorSettings
from services.executor.workloads import Workloads, by_reservation
from shared.benchmarks.tools.present import list_installed_tools
from shared.clock import utcnow
from shared.errors import RefusedError, StewardError, UnavailableError
from shared.ids import new_id
from shared.logging import log
from shared.messaging.bus import Bus
from shared.paths import lock_file, make_directory
from shared.waiting import wait_for, within

FENCE_WAIT_SECONDS: Final = 1.0
RECOVERY_WAIT_SECONDS: Final = 10.0
STOP_WAIT_SECONDS: Final = 15.0
SECOND_WAIT_SECONDS: Final = 1.0
PRUNE_INTERVAL_SECONDS: Final = 3600.0

StartLoop = Callable[[str, Callable[[], Awaitable[None]]], object]


class ExecutorBusy(StewardError):
    """Another executor runs on this data directory or in this node's name."""


@dataclass(slots=True, kw_only=True)
class Executor:
    """Owns the journal and every run. `start_loop` starts what has to run beside the commands."""

    settings: ExecutorSettings
    bus: Bus
    journal: Journal
    outbox: Outbox
    workloads: Workloads
    start_loop: StartLoop
    boot_id: UUID = field(default_factory=new_id)
    address: str | None = None
    is_stopping: bool = False  # nothing is started any more
    kept: KeptEngines = field(init=False)
    _models: ModelConfigs = field(init=False)
    _guard: LeaseGuard = field(default_factory=LeaseGuard)
    _runs: dict[UUID, AttemptRun] = field(default_factory=dict)
    _endings: dict[UUID, asyncio.Event] = field(default_factory=dict)
    _report_due: asyncio.Event = field(default_factory=asyncio.Event)
    _lock_descriptor: int | None = None

    def __post_init__(self) -> None:
        self.kept = KeptEngines(start_loop=self.start_loop)
        self._models = ModelConfigs(model_directories(self.settings, own_variables(HUB_CACHES)))

    async def open(self) -> None:
        """Claim the data directory and open the journal, once. Raises ExecutorBusy."""
        if self._lock_descriptor is None:
            make_directory(self.settings.home, 0o700)
            self._lock_descriptor = _lock(self.settings.home / "lock")
            self.workloads.local_executors.announce(self.settings.node_id)
            await self.journal.open()

    async def stream_seen(self, stream: str, created_at: datetime) -> None:
        """The bus says which stream there is, the first time before `recover`."""
        await self.open()
        await self.outbox.stream_seen(stream, created_at)

    async def recover(self) -> None:
        """End what an earlier life left behind; before any command is accepted.

        What the kernel does not let go within 10 s is waited for beside the commands. Raises
        ExecutorBusy.
        """
        await self._refuse_second()
        await self.open()
        await self._prune()
        endings: list[asyncio.Event] = []
        for record in await self.journal.transact(store.find_unfinished_attempts):
            endings.append(ended := asyncio.Event())
            log.warning("attempt_left_behind", attempt_id=str(record.command.attempt_id))
            self.start_loop("end_leftover", partial(self._end_leftover, record, ended))
        for record in await self.journal.transact(kept_rows.find_all):
            endings.append(ended := asyncio.Event())
            self.start_loop("end_kept", partial(self._end_left_engine, record, ended))
        with contextlib.suppress(TimeoutError):
            async with within(RECOVERY_WAIT_SECONDS):
                for ended in endings:
                    await ended.wait()

    def start_attempt(self, command: StartExperiment, kept: KeptEngine | None = None) -> None:
        """Run a journaled attempt, on the engine that was `kept` up for it."""
        run = AttemptRun(
            command=command,
            labels=self._labels_of(command),
            runtime=self.workloads.runtimes[command.engine.runtime],
            ranks=ranks_of(command, self.bus, self.settings),
            guard=self._guard,
            journal=self.journal,
            bus=self.bus,
            settings=self.settings,
            kept=kept,
            on_left=self.kept.add,
        )
        self._runs[command.attempt_id] = run
        self.start_loop(f"attempt-{command.attempt_id}", partial(self._follow, run))

    def run_of(self, attempt_id: UUID) -> AttemptRun | None:
        """The attempt while it is under way in this life."""
        return self._runs.get(attempt_id)

    def phases(self) -> tuple[AttemptPhase, ...]:
        """The phases of the attempts under way in this process."""
        return tuple(run.phase for run in self._runs.values())

    def cancel_attempt(self, attempt_id: UUID, reason: str) -> None:
        """Stop a run whose cancellation is journaled; nothing if there is none."""
        run = self._runs.get(attempt_id)
        if run is not None:
            run.stop(cancellation_verdict(reason))
        self.kept.stop_of(attempt_id, reason or "it was cancelled")

    async def publish_end_again(self, attempt_id: UUID) -> None:
        """Publish the stored end again: a sender that starts an ended attempt has missed it."""
        await self.journal.transact(
            lambda connection: outbox_rows.publish_end_again(connection, attempt_id)
        )

    async def is_stopped(self, reservation_id: UUID) -> bool:
        """Return whether nothing runs under a fenced reservation; ends what does."""
        for run in self._runs_of(reservation_id):
            run.stop(lease_lost("the reservation was fenced"))
        self.kept.stop_under(reservation_id, "the reservation was fenced")
        if await self.workloads.is_quiet(reservation_id):
            return True
        ended = self._end_soon(reservation_id)
        return await wait_for(ended, FENCE_WAIT_SECONDS) and await self.workloads.is_quiet(
            reservation_id
        )

    async def running_attempts(self) -> RunningAttempts:
        """Accepted and not finished, also those of an earlier life; and all that is labelled."""
        workloads, unavailable = await self.workloads.all()
        records = await self.journal.transact(store.find_unfinished_attempts)
        return RunningAttempts(
            executor_id=self.settings.node_id,
            boot_id=self.boot_id,
            attempts=tuple(
                RunningAttempt(
                    experiment_id=record.command.experiment_id,
                    attempt_id=record.command.attempt_id,
                    attempt_number=record.command.attempt_number,
                    reservation_id=record.command.reservation_id,
                    epoch=record.command.epoch,
                    phase=record.phase,
                    pids=tuple(
                        pid
                        for workload in workloads
                        if workload.labels.reservation_id == record.command.reservation_id
                        and workload.labels.node_id == self.settings.node_id
                        for pid in workload.pids
                    ),
                )
                for record in records
            ),
            workloads=by_reservation(workloads) if not unavailable else None,
        )

    async def reconcile(self) -> None:
        """Stop what runs and is not granted: every interval, for ever."""
        while True:
            await asyncio.sleep(self.settings.reconcile_interval_seconds)
            await self.reconcile_once()

    async def reconcile_once(self) -> None:
        """Compare what runs with what is granted, and have what is not granted ended."""
        ungranted = await self.workloads.find_ungranted(self._endings)
        for reservation_id, reason in ungranted.items():
            log.warning("workload_stopped", reservation_id=str(reservation_id), reason=reason)
            self._end_soon(reservation_id)

    async def report(self) -> None:
        """Publish what this node offers: now, every interval, and after `request_report`."""
        while True:
            self._report_due.clear()
            await self._publish_report()
            await wait_for(self._report_due, self.settings.report_interval_seconds)

    async def request_report(self) -> None:
        self._report_due.set()

    async def prune(self) -> None:
        """Forget what is old; close the journal at the end."""
        try:
            while True:
                await asyncio.sleep(PRUNE_INTERVAL_SECONDS)
                await self._prune()
        finally:
            self._guard.close()
            self.journal.close_nowait()
            self._unlock()

    async def shut_down(self) -> None:
        """End every run as interrupted, and publish it as far as the bus allows."""
        self.is_stopping = True
        # After those that were being admitted: accepted, they are among the runs then.
        with contextlib.suppress(UnavailableError):
            await self.journal.transact(lambda _: None)
        runs = tuple(self._runs.values())
        for run in runs:
            run.stop(executor_stopped())
        try:
            async with within(STOP_WAIT_SECONDS):
                for run in runs:
                    await run.ended.wait()
                await self.kept.end_all("the executor was stopped")
        except TimeoutError:
            log.error("attempts_outlive_executor", attempts=[str(run.attempt_id) for run in runs])
        await self.outbox.flush(self.settings.flush_timeout_seconds)

    async def _refuse_second(self) -> None:
        """Two executors with one node id would confirm stops of what the other one runs."""
        query = ListRunning(executor_id=self.settings.node_id)
        try:
            other = await self.bus.query(
                query, RunningAttempts, timeout_seconds=SECOND_WAIT_SECONDS
            )
        except (UnavailableError, RefusedError):
            return
        raise ExecutorBusy(
            f"another executor (boot {other.boot_id}) answers for node {other.executor_id}; "
            "stop it, or set another GPUSTEWARD_NODE_ID here"
        )

    async def _prune(self) -> None:
        try:
            await self.journal.transact(store.prune)
        except JournalFull as error:
            log.warning("prune_postponed", error=str(error))
        cutoff = time.time() - store.KEEP_MEMORY_SECONDS
        await asyncio.to_thread(remove_older, self.settings.attempts_dir, cutoff)
        await asyncio.to_thread(CompileCaches.of(self.settings).prune)

    async def _follow(self, run: AttemptRun) -> None:
        try:
            await run.run()
        finally:
            self._runs.pop(run.attempt_id, None)

    async def _end_leftover(self, record: AttemptRecord, ended: asyncio.Event) -> None:
        command = record.command
        ranks = ranks_of(command, self.bus, self.settings)
        await asyncio.gather(ranks.end_others(), self.workloads.end(self._labels_of(command)))
        verdict = executor_restarted("the executor ended while the attempt ran")
        await self.journal.transact_when_possible(
            lambda connection: transitions.record_finish(
                connection, command.attempt_id, verdict, utcnow()
            )
        )
        log.warning("attempt_interrupted", attempt_id=str(command.attempt_id))
        ended.set()

    async def _end_left_engine(self, record: AttemptRecord, ended: asyncio.Event) -> None:
        """End what an earlier life kept up: nobody can vouch for it now."""
        command, reason = record.command, "the executor ended meanwhile"
        await self.workloads.end(self._labels_of(command))
        await self.journal.transact_when_possible(
            lambda connection: kept_rows.end(connection, command.reservation_id, reason)
        )
        log.warning("kept_engine_ended", attempt_id=str(command.attempt_id), reason=reason)
        ended.set()

    def _end_soon(self, reservation_id: UUID) -> asyncio.Event:
        """Have everything under a reservation ended; set when it is."""
        ended = self._endings.get(reservation_id)
        if ended is None:
            ended = self._endings[reservation_id] = asyncio.Event()
            self.start_loop(
                f"end-{reservation_id}", partial(self._end_reservation, reservation_id, ended)
            )
        return ended

    async def _end_reservation(self, reservation_id: UUID, ended: asyncio.Event) -> None:
        try:
            for run in self._runs_of(reservation_id):
                await run.ended.wait()
            await self.kept.end_under(reservation_id, "its reservation is being ended")
            await self.workloads.end_all(
                self._labels(reservation_id), grace_seconds=self.settings.stop_grace_seconds
            )
        finally:
            del self._endings[reservation_id]
            ended.set()

    async def _publish_report(self) -> None:
        self.address = await engine_address(self.settings)
        try:
            revision, largest_epoch = await self.journal.transact(store.count_report)
        except JournalFull as error:
            log.warning("report_skipped", error=str(error))
            return
        report = ExecutorReported(
            message_id=new_id(),
            occurred_at=utcnow(),
            revision=revision,
            executor_id=self.settings.node_id,
            boot_id=self.boot_id,
            runtimes=await list_offers(self.workloads.runtimes, self.settings, self._models),
            benchmark_tools=tuple(tool.value for tool in list_installed_tools()),
            largest_epoch=largest_epoch,
            address=self.address,
            endpoint_engines=await self._endpoint_engines(),
        )
        try:
            await self.bus.publish_event(report)
        except UnavailableError as error:
            log.info("report_skipped", error=str(error))

    async def _endpoint_engines(self) -> tuple[str, ...]:
        runtime = self.workloads.runtimes.get(Runtime.ENDPOINT)
        return (await runtime.offer()).engines if runtime is not None else ()

    def _runs_of(self, reservation_id: UUID) -> list[AttemptRun]:
        return [run for run in self._runs.values() if run.command.reservation_id == reservation_id]

    def _labels(self, reservation_id: UUID) -> Labels:
        return Labels(
            reservation_id=reservation_id,
            installation_id=self.settings.installation_id,
            node_id=self.settings.node_id,
        )

    def _labels_of(self, command: StartExperiment) -> Labels:
        labels = self._labels(command.reservation_id)
        return replace(labels, epoch=command.epoch, experiment_id=command.experiment_id)

    def _unlock(self) -> None:
        self.workloads.local_executors.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


def _lock(path: Path) -> int:
    descriptor = lock_file(path)
    if descriptor is None:
        raise ExecutorBusy(
            f"another executor holds {path}; stop it, or give this one another data directory"
        )
    return descriptor
