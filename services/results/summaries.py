"""Computes what is pending: joins an attempt's windows to its GPUs' samples."""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from schemas.benchmark import BenchmarkMetrics
from schemas.results import ExperimentSummarized, GpuMonitoring
from services.results import attempts
from services.results.attempts import Pending
from services.results.domain.monitoring import summarize
from services.results.domain.reading import union_of
from shared.clock import utcnow
from shared.database import Connection, Database
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.logging import log
from shared.outbox import stage

LOOK_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 30.0


@dataclass(slots=True)
class Summarizer:
    """Takes pending summaries one by one; instances beside each other take different ones."""

    database: Database
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _failed: dict[UUID, float] = field(default_factory=dict)  # and when to try again

    async def run(self) -> None:
        """Summarize until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            self.wake.clear()
            await self.summarize_ready()
            try:
                await asyncio.wait_for(self.wake.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    async def summarize_ready(self) -> None:
        """Summarize every attempt whose samples are complete or whose time has come."""
        now = asyncio.get_running_loop().time()
        self._failed = {key: at for key, at in self._failed.items() if at > now}
        looked_at = set(self._failed)
        while True:
            pending: Pending | None = None
            try:
                async with self.database.transaction() as connection:
                    pending = await attempts.next_pending(connection, looked_at, utcnow())
                    if pending is None:
                        return
                    looked_at.add(pending.event.attempt_id)
                    await _summarize_if_ready(connection, pending)
            except UnavailableError:
                raise
            except Exception:
                if pending is None:
                    raise
                # One attempt that cannot be summarized keeps no other from it.
                self._failed[pending.event.attempt_id] = now + RETRY_SECONDS
                log.exception("summary_failed", attempt_id=str(pending.event.attempt_id))


async def _summarize_if_ready(connection: Connection, pending: Pending) -> None:
    passed_at = await attempts.passed_at(connection, pending)
    if passed_at is None and not pending.due:
        return
    until = passed_at or pending.window_finished_at + attempts.MARGIN
    monitoring = await _compute(connection, pending)
    changed = monitoring != pending.gpu_monitoring
    experiment_id = pending.event.experiment_id
    version = await attempts.next_version(connection, experiment_id) if changed else pending.version
    await attempts.settle(
        connection, pending, monitoring, version=version, samples_until=until, now=utcnow()
    )
    if changed:
        await stage(connection, _summarized(pending, monitoring, version))
        log.info(
            "experiment_summarized",
            experiment_id=str(experiment_id),
            version=version,
            coverage_percent=round(monitoring.coverage_percent, 1),
        )


async def _compute(connection: Connection, pending: Pending) -> GpuMonitoring:
    event = pending.event
    await attempts.keep_samples(connection, pending, pending.window_finished_at + attempts.MARGIN)
    readings, any_simulated = await attempts.kept_readings(connection, event.attempt_id)
    return summarize(
        event.devices,
        readings,
        union_of(attempts.windows_of(event)),
        simulated=any_simulated or any(device.simulated for device in event.devices),
    )


def _summarized(pending: Pending, monitoring: GpuMonitoring, version: int) -> ExperimentSummarized:
    event = pending.event
    return ExperimentSummarized(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=version,
        experiment_id=event.experiment_id,
        attempt_id=event.attempt_id,
        task_id=event.task_id,
        version=version,
        metrics=event.benchmark.metrics if event.benchmark is not None else BenchmarkMetrics(),
        gpu_monitoring=monitoring,
    )
