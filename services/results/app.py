"""Puts the results service together."""

import asyncio
from datetime import timedelta
from functools import partial

from schemas.executor.engine_samples import EngineSampled
from schemas.telemetry.readings import GpuSampled
from services.results.bursts import Bursts
from services.results.bursts import build_routes as bursts_routes
from services.results.engine_samples import EngineSamples
from services.results.engine_samples import build_routes as engine_samples_routes
from services.results.experiment_samples import ExperimentSamples
from services.results.experiment_samples import build_routes as samples_routes
from services.results.gpu_time.facts import Facts
from services.results.gpu_time.facts import build_routes as gpu_time_routes
from services.results.gpu_time.hours import GpuHours
from services.results.gpu_time.idle import IdleReports
from services.results.gpu_time.idle import build_routes as idle_routes
from services.results.gpu_time.reports import Reports
from services.results.gpu_time.reports import build_routes as report_routes
from services.results.gpu_time.waterfall import Waterfalls
from services.results.gpu_time.waterfall import build_routes as waterfall_routes
from services.results.handlers import Handlers, build_routes
from services.results.migrations import MIGRATIONS
from services.results.rollups import Rollups
from services.results.samples.packing import Packing
from services.results.samples.partitions import Partitions, Table, keep_up
from services.results.samples.store import SampleStore
from services.results.settings import ResultsSettings
from services.results.summaries.summarizer import Summarizer
from shared.messaging.bus import Bus
from shared.messaging.samples import SampleConsumer
from shared.messaging.streams import ENGINE_SAMPLES, SAMPLES
from shared.postgres.database import Database
from shared.service import Service, Step
from shared.settings import load_settings


def create_service(settings: ResultsSettings | None = None) -> Service:
    """The service, closed; `run` or `running` opens it. Raises SettingsError."""
    settings = settings or load_settings(ResultsSettings, "results")
    database = Database.from_settings("results", settings, MIGRATIONS, dsn=settings.dsn)
    bus = Bus.from_settings("results", settings)
    prices, currency = settings.prices, settings.currency
    samples_kept = timedelta(days=settings.retention_days)
    minutes_kept = timedelta(days=settings.minutes_retention_days)
    hours_kept = timedelta(days=settings.hours_retention_days)
    summarizer = Summarizer(database, asyncio.Event(), prices)
    handlers = Handlers(
        database,
        timedelta(seconds=settings.summary_grace_seconds),
        summarizer.wake,
        samples_kept,
        minutes_kept,
    )
    raw = Partitions(database, Table.RAW, samples_kept.days)
    by_device = Partitions(database, Table.BY_DEVICE, samples_kept.days)
    packed = Partitions(database, Table.PACKED, samples_kept.days)
    minutes = Partitions(database, Table.MINUTE, minutes_kept.days)
    hours = Partitions(database, Table.HOUR, hours_kept.days)
    export = None
    if settings.otlp_endpoint:
        from services.results.otlp_export import OtlpExport

        export = OtlpExport(database, settings.otlp_endpoint)
    samples = SampleStore(
        database, raw, handlers.on_samples_stored, export.put if export is not None else None
    )
    engine_samples = EngineSamples(database)
    bursts = Bursts(bus, database, settings.burst_interval_seconds, settings.burst_seconds)
    loops: dict[str, Step] = {
        "samples": SampleConsumer(
            bus,
            str(SAMPLES.name),
            "results_store_samples",
            GpuSampled,
            samples.store,
            settings.batch_linger_seconds,
        ).run,
        "engine_samples": SampleConsumer(
            bus,
            str(ENGINE_SAMPLES.name),
            "results_store_engine_samples",
            EngineSampled,
            engine_samples.store,
            settings.batch_linger_seconds,
        ).run,
        "summaries": summarizer.run,
        "rollups": Rollups(database, minutes, hours, samples_kept).run,
        "gpu_hours": GpuHours(database, samples_kept, hours_kept).run,
        "packing": Packing(database, packed).run,
        "partitions": partial(keep_up, (raw, by_device, packed, minutes, hours)),
    }
    if export is not None:
        loops["otlp_export"] = export.run
    return Service(
        "results",
        bus=bus,
        database=database,
        routes=[
            *build_routes(handlers),
            *bursts_routes(bursts),
            *samples_routes(ExperimentSamples(database)),
            *engine_samples_routes(engine_samples),
            *gpu_time_routes(Facts(database, samples_kept)),
            *report_routes(Reports(database, prices, currency, bus)),
            *idle_routes(IdleReports(database)),
            *waterfall_routes(Waterfalls(database, prices, currency)),
        ],
        start=raw.make_ahead,
        loops=loops,
    )
