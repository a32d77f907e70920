"""Computes what is pending: joins an attempt's windows to its GPUs' samples."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.executor.attempts import AttemptFinished, Window
from schemas.results.measurements import ExperimentSummarized, GpuMonitoring
from schemas.task.benchmark import BenchmarkMetrics
from services.results import driver_versions
from services.results.domain.monitoring import MEASURING, WHOLE_RUN, Run, summarize
from services.results.domain.reading import Span, union_of
from services.results.samples.conditions import conditions_of, devices_of
from services.results.summaries import summary_rows
from services.results.summaries.summary_rows import Pending
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.gpu.stats import peak_memory_mb
from shared.ids import new_id
from shared.logging import log
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage
from shared.waiting import wait_for

POLL_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 30.0
# What comes of the time after an attempt's end belongs to its last moments.
TAIL: Final = timedelta(seconds=1)


@dataclass(slots=True)
class Summarizer:
    """Takes pending summaries one by one; instances beside each other take different ones."""

    database: Database
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    prices: Mapping[str, float] = field(default_factory=dict)
    _failed: dict[UUID, float] = field(default_factory=dict)  # and when to try again

    async def run(self) -> None:
        """Summarize until cancelled. Raises UnavailableError when Postgres is down."""
        while True:
            self.wake.clear()
            await self.summarize_ready()
            await wait_for(self.wake, POLL_SECONDS)

    async def summarize_ready(self) -> None:
        """Summarize every attempt whose samples are complete or whose time has come."""
        now = asyncio.get_running_loop().time()
        self._failed = {key: at for key, at in self._failed.items() if at > now}
        tried_ids = set(self._failed)
        while True:
            pending: Pending | None = None
            try:
                async with self.database.transaction() as connection:
                    pending = await summary_rows.next_pending(connection, tried_ids, utcnow())
                    if pending is None:
                        return
                    tried_ids.add(pending.event.attempt_id)
                    await _summarize_if_ready(connection, pending, self.prices)
            except UnavailableError:
                raise
            except Exception:
                if pending is None:
                    raise
                # One attempt that cannot be summarized holds up no other.
                self._failed[pending.event.attempt_id] = now + RETRY_SECONDS
                log.exception("summary_failed", attempt_id=str(pending.event.attempt_id))


async def _summarize_if_ready(
    connection: Connection, pending: Pending, prices: Mapping[str, float]
) -> None:
    passed_at = await summary_rows.find_passing(connection, pending)
    if passed_at is None and not pending.due:
        return
    until = max(
        passed_at or pending.window_finished_at + summary_rows.MARGIN,
        pending.event.finished_at + TAIL,
    )
    monitoring, whole_run = await _compute(connection, pending, prices)
    changed = monitoring != pending.gpu_monitoring
    experiment_id = pending.event.experiment_id
    version = (
        await summary_rows.next_version(connection, experiment_id) if changed else pending.version
    )
    await summary_rows.save_summary(
        connection,
        pending,
        monitoring,
        whole_run,
        version=version,
        samples_until=until,
        now=utcnow(),
    )
    if changed:
        drivers = await driver_versions.versions_of(connection, pending.event)
        await stage(connection, _summarize(pending, monitoring, whole_run, version, drivers))
        log.info(
            "experiment_summarized",
            experiment_id=str(experiment_id),
            version=version,
            coverage_percent=round(monitoring.coverage_percent, 1),
        )


async def _compute(
    connection: Connection, pending: Pending, prices: Mapping[str, float]
) -> tuple[GpuMonitoring, GpuMonitoring]:
    """Summarize the measured windows and the whole run."""
    event = pending.event
    until = max(pending.window_finished_at, event.finished_at) + summary_rows.MARGIN
    devices, unknown = await devices_of(connection, event)
    await summary_rows.copy_samples(connection, pending, devices, until)
    readings, any_simulated = await summary_rows.readings_of(connection, event.attempt_id)
    conditions = await conditions_of(
        connection,
        (
            reading.condition_no
            for device_readings in readings.values()
            for reading in device_readings
        ),
    )
    faults = await summary_rows.faults_of(connection, pending, until)

    def summary_of(phase: str, spans: Sequence[Span]) -> GpuMonitoring:
        tokens = _output_tokens(event)
        monitoring = summarize(
            Run(devices, spans, phase, event.reservation_id, tokens, unknown, prices),
            readings,
            simulated=any_simulated or any(device.simulated for device in devices),
            conditions=conditions,
            faults=faults,
        )
        return monitoring if event.devices else replace(monitoring, devices=devices)

    def summaries() -> tuple[GpuMonitoring, GpuMonitoring]:
        whole_run = Window(started_at=event.started_at, finished_at=event.finished_at)
        measured = union_of(summary_rows.windows_of(event))
        return summary_of(MEASURING, measured), summary_of(WHOLE_RUN, union_of([whole_run]))

    # Hours of samples would hold up everything else of this process.
    return await asyncio.to_thread(summaries)


def _output_tokens(event: AttemptFinished) -> float | None:
    if event.benchmark is None:
        return None
    counted = [level.stats.num_output_tokens for level in event.benchmark.levels]
    known_sums = [tokens.sum for tokens in counted if tokens is not None]
    return sum(known_sums) if known_sums else None


def _summarize(
    pending: Pending,
    monitoring: GpuMonitoring,
    whole_run: GpuMonitoring,
    version: int,
    drivers: dict[str, str],
) -> ExperimentSummarized:
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
        peak_memory_mb=peak_memory_mb(whole_run),
        driver_versions=drivers,
    )
