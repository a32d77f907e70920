"""Puts the results service together."""

import asyncio
from datetime import timedelta

from schemas.engine_samples import EngineSampled
from schemas.telemetry import GpuSampled
from services.results.bursts import Bursts
from services.results.bursts import build_routes as bursts_routes
from services.results.engine_samples import EngineSamples
from services.results.engine_samples import build_routes as engine_samples_routes
from services.results.experiment_samples import ExperimentSamples
from services.results.experiment_samples import build_routes as samples_routes
from services.results.handlers import Handlers, build_routes
from services.results.ledger.facts import Facts
from services.results.ledger.facts import build_routes as ledger_routes
from services.results.ledger.hours import Ledger
from services.results.ledger.idle import IdleReports
from services.results.ledger.idle import build_routes as idle_routes
from services.results.ledger.reports import Reports
from services.results.ledger.reports import build_routes as report_routes
from services.results.ledger.waterfall import Waterfalls
from services.results.ledger.waterfall import build_routes as waterfall_routes
from services.results.migrations import MIGRATIONS
from services.results.partitions import Partitions, Table
from services.results.rollups import Rollups
from services.results.samples import SampleStore
from services.results.settings import ResultsSettings
from services.results.summaries import Summarizer
from shared.gpu.prices import parse_prices
from shared.messaging.bus import Bus
from shared.messaging.samples import SampleConsumer
from shared.messaging.streams import ENGINE_SAMPLES, SAMPLES
from shared.postgres.database import Database
from shared.service import Service
from shared.settings import SettingsError, load_settings


def create_service(settings: ResultsSettings | None = None) -> Service:
    """The service, closed; `run` or `running` opens it. Raises SettingsError without Postgres."""
    settings = settings or load_settings(ResultsSettings, "results")
    if settings.postgres_dsn is None:
        raise SettingsError("expected GPUSTEWARD_POSTGRES_DSN, found none")
    if (
        not settings.retention_days
        <= settings.minutes_retention_days
        <= settings.hours_retention_days
    ):
        raise SettingsError(
            "expected retention_days <= minutes_retention_days <= hours_retention_days, found"
            f" {settings.retention_days}, {settings.minutes_retention_days} and"
            f" {settings.hours_retention_days}"
        )
    try:
        prices = parse_prices(settings.gpu_hour_prices)
    except ValueError as error:
        raise SettingsError(f"GPUSTEWARD_RESULTS_GPU_HOUR_PRICES: {error}") from error
    if settings.otlp_endpoint and not settings.otlp_endpoint.startswith(("http://", "https://")):
        raise SettingsError(
            "GPUSTEWARD_RESULTS_OTLP_ENDPOINT: expected a URL such as http://collector:4318, found"
            f" {settings.otlp_endpoint!r}"
        )
    database = Database(settings.postgres_dsn, "results", MIGRATIONS)
    bus = Bus.from_settings("results", settings)
    summarizer = Summarizer(database, asyncio.Event(), prices)
    handlers = Handlers(
        database,
        timedelta(seconds=settings.summary_grace_seconds),
        summarizer.wake,
        timedelta(days=settings.retention_days),
        timedelta(days=settings.minutes_retention_days),
    )
    raw = Partitions(database, Table.RAW, settings.retention_days)
    minutes = Partitions(database, Table.MINUTE, settings.minutes_retention_days)
    hours = Partitions(database, Table.HOUR, settings.hours_retention_days)
    samples = SampleStore(database, raw, handlers.on_samples_stored)
    otlp_loops = {}
    if settings.otlp_endpoint:
        from services.results.otlp_export import OtlpExport

        otlp = OtlpExport(database, settings.otlp_endpoint)
        samples.forward = otlp.put
        otlp_loops = {"otlp_export": otlp.run}
    rollups = Rollups(database, minutes, hours, timedelta(days=settings.retention_days))

    samples_kept = timedelta(days=settings.retention_days)
    facts = Facts(database, samples_kept)
    ledger = Ledger(database, samples_kept, timedelta(days=settings.hours_retention_days))

    bursts = Bursts(bus, database, settings.burst_interval_seconds, settings.burst_seconds)
    linger_seconds = settings.batch_linger_seconds
    consumer = SampleConsumer(
        bus,
        str(SAMPLES.name),
        "results_store_samples",
        GpuSampled,
        samples.store,
        linger_seconds,
    )
    engine_samples = EngineSamples(database)
    engine_consumer = SampleConsumer(
        bus,
        str(ENGINE_SAMPLES.name),
        "results_store_engine_samples",
        EngineSampled,
        engine_samples.store,
        linger_seconds,
    )

    return Service(
        "results",
        bus=bus,
        database=database,
        routes=[
            *build_routes(handlers),
            *bursts_routes(bursts),
            *samples_routes(ExperimentSamples(database)),
            *engine_samples_routes(engine_samples),
            *ledger_routes(facts),
            *report_routes(Reports(database, prices, settings.currency, bus)),
            *idle_routes(IdleReports(database)),
            *waterfall_routes(Waterfalls(database, prices, settings.currency)),
        ],
        start=raw.make_ahead,
        loops={
            "samples": consumer.run,
            "engine_samples": engine_consumer.run,
            "summaries": summarizer.run,
            "rollups": rollups.run,
            "ledger": ledger.run,
            "partitions": raw.run,
            "minutes_partitions": minutes.run,
            "hours_partitions": hours.run,
            **otlp_loops,
        },
    )
