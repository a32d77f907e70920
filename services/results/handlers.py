"""Messages in, stored rows and answers out."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.executor.attempts import AttemptFinished
from schemas.orchestrator.deletion import ExperimentDeleted, TaskDeleted
from schemas.results.measurements import (
    GetMemoryTrend,
    GetReport,
    GetRequests,
    GetSummary,
    ListSummaries,
    MemoryTrendView,
    ReportView,
    RequestsView,
    SummaryList,
    SummaryView,
)
from schemas.results.series import GetSeries, ListPods, PodList, SeriesBy, SeriesView
from schemas.task.benchmark import BenchmarkMetrics
from schemas.telemetry.readings import HealthChanged, HealthKind, InventoryReported
from services.results import driver_versions, erasure, history, pod_history
from services.results.domain.rollup import Level
from services.results.samples.partitions import midnight
from services.results.summaries import memory_trends, summary_rows
from services.results.summaries.level_bounds import with_bounds
from services.results.summaries.summary_rows import Summary
from shared.benchmarks.levels.request_columns import RequestRow, unpack_requests
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.messaging.bus import Route, event_route, query_route
from shared.messaging.paging import fitting
from shared.postgres.database import Connection, Database

MAX_SUMMARIES: Final = 200  # decoded for one answer


@dataclass(frozen=True, slots=True)
class Handlers:
    """`summaries_wake` is set when there may be something to summarize."""

    database: Database
    summary_grace: timedelta
    summaries_wake: asyncio.Event
    samples_kept: timedelta
    minutes_kept: timedelta

    async def record_finished(self, event: AttemptFinished) -> None:
        """Store an attempt once, however often its event comes."""
        now = utcnow()
        async with self.database.transaction() as connection:
            await erasure.lock_task(connection, event.task_id)
            if not await summary_rows.insert_attempt(connection, event, now):
                return
            await summary_rows.expect_summary(connection, event, now + self.summary_grace)
            if await erasure.is_deleted(connection, event):
                await erasure.erase(connection, event.task_id, event.experiment_id, now)
        self.summaries_wake.set()

    async def record_health(self, event: HealthChanged) -> None:
        """Store the XIDs of devices: they belong to experiments on these."""
        if event.change is not HealthKind.XID or event.device_uuid is None or event.xid is None:
            return
        async with self.database.transaction() as connection:
            await summary_rows.insert_fault(connection, event)
            at = event.occurred_at
            await summary_rows.reopen(connection, {event.node_id: (at, at)})
        self.summaries_wake.set()

    async def record_inventory(self, event: InventoryReported) -> None:
        """Store a node's driver, where it is another one than before."""
        async with self.database.transaction() as connection:
            await driver_versions.record(connection, event)

    async def erase_deleted(self, event: TaskDeleted | ExperimentDeleted) -> None:
        """Forget measurements with what they are of; GPU hours and energy stay for reports."""
        experiment_id = event.experiment_id if isinstance(event, ExperimentDeleted) else None
        async with self.database.transaction() as connection:
            await erasure.lock_task(connection, event.task_id)
            await erasure.erase(connection, event.task_id, experiment_id, utcnow())

    async def on_samples_stored(
        self, connection: Connection, spans: dict[str, tuple[datetime, datetime]]
    ) -> None:
        """Called with every stored batch of samples, in its transaction."""
        await summary_rows.reopen(connection, spans)
        self.summaries_wake.set()

    async def get_summary(self, query: GetSummary) -> SummaryView:
        """The newest summary of an experiment."""
        async with self.database.transaction() as connection:
            summary = await summary_rows.get_summary(connection, query.experiment_id)
            event = summary.event
            drivers = await driver_versions.versions_of(connection, event)
            if event.benchmark is not None:
                bounded = await with_bounds(connection, event.attempt_id, event.benchmark)
                summary = replace(summary, event=replace(event, benchmark=bounded))
        return replace(_view(summary, with_benchmark=True), driver_versions=drivers)

    async def get_memory_trend(self, query: GetMemoryTrend) -> MemoryTrendView:
        """Return the memory trend of an attempt that ran out of memory."""
        async with self.database.transaction() as connection:
            event = await summary_rows.attempt_of(connection, query.attempt_id)
            gpus = await memory_trends.trend_of(connection, event) if event is not None else ()
        if event is None or not gpus:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"attempt {query.attempt_id} has no memory before a failure",
                path="$.attempt_id",
            )
        return MemoryTrendView(
            attempt_id=query.attempt_id, until_at=memory_trends.until_of(event), gpus=gpus
        )

    async def get_requests(self, query: GetRequests) -> RequestsView:
        """The measured requests of a level."""
        async with self.database.transaction() as connection:
            summary = await summary_rows.summary_of(connection, query.experiment_id)
            columns = (
                await summary_rows.requests_of(connection, summary.event.attempt_id, query.level)
                if summary is not None
                else None
            )
        if summary is None or summary.event.benchmark is None or columns is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"experiment {query.experiment_id} has no requests of level {query.level}",
                path="$.level",
            )
        level = summary.event.benchmark.levels[query.level]
        rows = unpack_requests(columns)
        return RequestsView(
            experiment_id=query.experiment_id,
            attempt_id=summary.event.attempt_id,
            level=query.level,
            scenario=level.scenario,
            num_concurrency=level.num_concurrency,
            one_in=columns.one_in,
            **{
                name: tuple(getattr(row, name) for row in rows)
                for name in RequestRow.__struct_fields__
            },
        )

    async def list_summaries(self, query: ListSummaries) -> SummaryList:
        """A task's summaries, as many as one answer carries."""
        async with self.database.transaction() as connection:
            summaries = await summary_rows.summaries_of_task(
                connection, query.task_id, query.after_experiment_id, MAX_SUMMARIES + 1
            )
        views = [_view(summary, with_benchmark=False) for summary in summaries]
        page = fitting(views[:MAX_SUMMARIES]) or views[:1]
        return SummaryList(
            summaries=tuple(page),
            next_after_experiment_id=page[-1].experiment_id if len(page) < len(views) else None,
        )

    async def get_series(self, query: GetSeries) -> SeriesView:
        """History of a metric. Refuses filters of which one would have to be left out."""
        _require_order(query.start_at, query.end_at)
        _refuse_beside_experiment(query)
        async with self.database.transaction() as connection:
            if query.by is SeriesBy.POD:
                return await pod_history.pod_series(connection, query)
            return await history.series(connection, query, self._retention_starts())

    async def list_pods(self, query: ListPods) -> PodList:
        """List the pods that had GPUs."""
        _require_order(query.start_at, query.end_at)
        async with self.database.transaction() as connection:
            return await pod_history.list_pods(connection, query)

    def _retention_starts(self) -> dict[Level, datetime]:
        today = midnight(utcnow().date())
        return {
            Level.RAW: today - self.samples_kept,
            Level.MINUTE: today - self.minutes_kept,
            Level.HOUR: datetime.min.replace(tzinfo=UTC),
        }

    async def get_report(self, query: GetReport) -> ReportView:
        """Usage per namespace."""
        _require_order(query.start_at, query.end_at)
        async with self.database.transaction() as connection:
            return await history.report(connection, query)


def _view(summary: Summary, *, with_benchmark: bool) -> SummaryView:
    event = summary.event
    benchmark = event.benchmark
    return SummaryView(
        experiment_id=event.experiment_id,
        attempt_id=event.attempt_id,
        task_id=event.task_id,
        version=summary.version,
        metrics=benchmark.metrics if benchmark is not None else BenchmarkMetrics(),
        gpu_monitoring=summary.gpu_monitoring,
        benchmark=msgspec.to_builtins(benchmark) if benchmark and with_benchmark else {},
        whole_run=summary.whole_run,
        image_digest=event.image_digest,
        dataset=benchmark.dataset if benchmark is not None else None,
        trace=benchmark.trace if benchmark is not None else None,
    )


def _require_order(start_at: datetime, end_at: datetime) -> None:
    if start_at >= end_at:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected an end after the start {start_at.isoformat()}, found {end_at.isoformat()}",
            path="$.end_at",
        )


def _refuse_beside_experiment(query: GetSeries) -> None:
    if query.experiment_id is None:
        return
    if query.by is SeriesBy.POD:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected no experiment_id with by=pod, found {query.experiment_id}: pods have no"
            " series of an experiment; ask by=gpu or by=node, or name the pod",
            path="$.experiment_id",
        )
    if query.namespace is not None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected no namespace with experiment_id, found {query.namespace!r}: an experiment is"
            " of one namespace already",
            path="$.namespace",
        )


def build_routes(handlers: Handlers) -> list[Route]:
    """Queries and events; samples come by a loop of their own."""
    return [
        event_route(handlers.record_finished, AttemptFinished, durable="results_record_finished"),
        event_route(
            handlers.erase_deleted,
            TaskDeleted,
            ExperimentDeleted,
            durable="results_erase_deleted",
        ),
        event_route(
            handlers.record_inventory, InventoryReported, durable="results_record_inventory"
        ),
        event_route(handlers.record_health, HealthChanged, durable="results_record_health"),
        query_route(handlers.get_summary, GetSummary),
        query_route(handlers.get_memory_trend, GetMemoryTrend),
        query_route(handlers.get_requests, GetRequests),
        query_route(handlers.list_summaries, ListSummaries),
        query_route(handlers.get_series, GetSeries),
        query_route(handlers.list_pods, ListPods),
        query_route(handlers.get_report, GetReport),
    ]
