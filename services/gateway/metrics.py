"""The platform's metrics for Prometheus: what the gateway counts, and what its owners answer."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import nats.errors
import nats.js.errors
from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.backlog import BACKLOG_OF, Backlog, GetBacklog, GetExecutorBacklog
from schemas.gateway.health import WarningCode
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, NamespaceUse
from schemas.scheduler.views import Drift, DriftList, ListDrifts
from services.gateway.bus_watch import BusWatch
from services.gateway.certificates import read_ends
from services.gateway.context import Gateway
from services.gateway.domain.certificate_ends import CertificateEnd
from services.gateway.domain.postgres_health import PostgresState, find_warnings
from services.gateway.ledger.postgres_state import read_postgres_state
from shared.errors import RefusedError, UnavailableError
from shared.messaging.streams import STREAMS
from shared.postgres.outbox import outbox_age_seconds
from shared.waiting import within

T = TypeVar("T")

ANSWER_TIMEOUT_SECONDS: Final = 2.0


class _Lag(Struct, frozen=True):
    """Of a durable consumer: what it has not received, and what it has not settled."""

    stream: str
    consumer: str
    pending: int
    unsettled: int


@dataclass(frozen=True, slots=True)
class _Answers:
    """What owners answered; None of those that did not in time."""

    namespaces: tuple[NamespaceUse, ...] | None
    drifts: tuple[Drift, ...] | None
    lags: tuple[_Lag, ...] | None
    postgres: PostgresState | None
    outboxes: tuple[tuple[dict[str, str], float], ...]
    ends: tuple[CertificateEnd, ...]


async def text_of(gateway: Gateway) -> bytes:
    """Return the metrics in Prometheus' text format 0.0.4, without those that cannot be known
    now.
    """
    answers = _Answers(
        *await asyncio.gather(
            _in_time(_namespaces(gateway)),
            _in_time(_drifts(gateway)),
            _in_time(_lags(gateway)),
            _in_time(_postgres(gateway)),
            _outboxes(gateway),
            read_ends(gateway),
        )
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_GatewayCollector(gateway))
    registry.register(_PlatformCollector(answers))
    ProcessCollector(registry=registry)
    return generate_latest(registry) + generate_latest(gateway.measurements.registry)


async def _in_time(answer: Awaitable[T]) -> T | None:
    try:
        async with within(ANSWER_TIMEOUT_SECONDS):
            return await answer
    except (
        UnavailableError,
        RefusedError,
        TimeoutError,
        nats.errors.Error,
        nats.js.errors.Error,
    ):
        return None


async def _namespaces(gateway: Gateway) -> tuple[NamespaceUse, ...]:
    return (await gateway.bus.query(ListNamespaces(), NamespaceList)).namespaces


async def _drifts(gateway: Gateway) -> tuple[Drift, ...]:
    drift_list = await gateway.fetch_list(
        ListDrifts(limit=1000), DriftList, "drifts", all_pages=True
    )
    return drift_list.drifts


async def _lags(gateway: Gateway) -> tuple[_Lag, ...]:
    return tuple(
        [
            _Lag(info.stream_name, info.name, info.num_pending or 0, info.num_ack_pending or 0)
            for stream in STREAMS
            for info in await gateway.bus.jetstream.consumers_info(str(stream.name))
        ]
    )


async def _postgres(gateway: Gateway) -> PostgresState:
    async with gateway.database.statements() as connection:
        return await read_postgres_state(connection)


async def _outboxes(gateway: Gateway) -> tuple[tuple[dict[str, str], float], ...]:
    """Labels and age in seconds of every outbox whose service answers."""
    ages: dict[tuple[str, str], Awaitable[float | None]] = {
        ("gateway", ""): _in_time(outbox_age_seconds(gateway.database)),
        **{(name, ""): _backlog(gateway, query()) for name, query in BACKLOG_OF.items()},
        **{
            ("executor", node_id): _backlog(gateway, GetExecutorBacklog(executor_id=node_id))
            for node_id in gateway.live.executors
        },
    }
    pairs = zip(ages, await asyncio.gather(*ages.values()), strict=True)
    return tuple(
        ({"service": service} | ({"node": node_id} if node_id else {}), age)
        for (service, node_id), age in pairs
        if age is not None
    )


async def _backlog(gateway: Gateway, query: GetBacklog) -> float | None:
    answer = await _in_time(gateway.bus.query(query, Backlog))
    return None if answer is None else answer.outbox_age_seconds


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gpusteward_{name}", text, labels=labels)


@dataclass(frozen=True, slots=True, eq=False)
class _PlatformCollector(Collector):
    answers: _Answers

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "gpusteward_scheduler_answers",
            "1 if the scheduler answered this scrape",
            float(self.answers.namespaces is not None),
        )
        yield up
        if self.answers.namespaces is not None:
            yield from self._of_namespaces(self.answers.namespaces)
        if self.answers.drifts is not None:
            drifts = _gauge("drifts", "Disagreements that last", ("kind",))
            for kind, count in Counter(drift.drift for drift in self.answers.drifts).items():
                drifts.add_metric((kind.value,), count)
            yield drifts
        if self.answers.lags is not None:
            yield from self._of_consumers(self.answers.lags)
        if self.answers.postgres is not None:
            yield from self._of_postgres(self.answers.postgres)
        outbox = _gauge("outbox_age_seconds", "Of the oldest unpublished event", ("service",))
        for labels, age_seconds in self.answers.outboxes:
            outbox.add_sample(outbox.name, labels, age_seconds)
        yield outbox
        ends = _gauge("certificate_ends_at_seconds", "When it ends, Unix time", ("certificate",))
        for end in self.answers.ends:
            ends.add_metric((end.certificate.value,), end.ends_at.timestamp())
        yield ends

    def _of_postgres(self, state: PostgresState) -> Iterator[Metric]:
        writes = "1 if Postgres takes writes"
        yield GaugeMetricFamily("gpusteward_postgres_writable", writes, float(state.takes_writes))
        codes_told = {warning.code for warning in find_warnings(state)}
        warnings = _gauge("postgres_warning", "1 of what /readyz warns of", ("code",))
        for code in (code for code in WarningCode if code.startswith("postgres")):
            warnings.add_metric((code.value,), float(code in codes_told))
        behind = _gauge("postgres_standby_behind_bytes", "Not yet on the standby's disk", ("name",))
        for standby in state.standbys:
            if standby.behind_bytes is not None:
                behind.add_metric((standby.name,), standby.behind_bytes)
        yield from (warnings, behind)

    def _of_namespaces(self, namespaces: tuple[NamespaceUse, ...]) -> Iterator[Metric]:
        queued = _gauge("queue_length", "Requests that wait for GPUs", ("namespace",))
        held_gauge = _gauge("gpus_held", "GPUs held, shares by their size", ("namespace",))
        limit = _gauge("gpu_limit", "GPUs that may be held at once", ("namespace",))
        for use in namespaces:
            queued.add_metric((use.namespace,), use.queued)
            held_gauge.add_metric((use.namespace,), use.gpus)
            if use.gpu_limit is not None:
                limit.add_metric((use.namespace,), use.gpu_limit)
        yield from (queued, held_gauge, limit)

    def _of_consumers(self, lags: tuple[_Lag, ...]) -> Iterator[Metric]:
        labels = ("stream", "consumer")
        pending = _gauge("consumer_lag_messages", "Messages not received yet", labels)
        unsettled = _gauge("consumer_unsettled_messages", "Received, not yet settled", labels)
        for lag in lags:
            pending.add_metric((lag.stream, lag.consumer), lag.pending)
            unsettled.add_metric((lag.stream, lag.consumer), lag.unsettled)
        yield from (pending, unsettled)


def _of_bus(watch: BusWatch) -> Iterator[Metric]:
    streams = _gauge("stream_silent_seconds", "Since it answered with a leader", ("stream",))
    for name, seconds in watch.stream_silences.items():
        streams.add_metric((name,), seconds)
    weak = _gauge("stream_lacks_replicas", "1 if fewer servers keep it than should", ("stream",))
    for name, lacks in watch.lacks.items():
        weak.add_metric((name,), float(bool(lacks)))
    labels = ("stream", "consumer")
    consumers = _gauge("consumer_silent_seconds", "Getting nothing though events wait", labels)
    for consumer, seconds in watch.consumer_silences.items():
        consumers.add_metric(consumer, seconds)
    yield from (streams, weak, consumers)


@dataclass(frozen=True, slots=True, eq=False)
class _GatewayCollector(Collector):
    gateway: Gateway

    def collect(self) -> Iterator[Metric]:
        live, log = self.gateway.live, self.gateway.log
        connected = self.gateway.bus.is_connected
        yield GaugeMetricFamily("gpusteward_bus_connected", "1 if the bus answers", connected)
        yield from _of_bus(self.gateway.bus_watch)
        yield CounterMetricFamily(
            "gpusteward_gateway_samples_received",
            "Samples received from the bus",
            live.samples_received,
        )
        yield CounterMetricFamily(
            "gpusteward_gateway_events_stored", "Events stored in the log", log.stored_events
        )
        yield GaugeMetricFamily("gpusteward_gateway_event_cursor", "Newest cursor", log.cursor)
        yield GaugeMetricFamily(
            "gpusteward_gateway_metric_watchers",
            "WebSocket clients of live data",
            len(live.watchers),
        )
        yield GaugeMetricFamily(
            "gpusteward_gateway_nodes",
            "Nodes with a sample in the last ten minutes",
            len(live.latest()),
        )
