"""The metrics of an agent: its GPUs under DCGM's names, and the agent itself."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from services.telemetry.agent import Agent
from services.telemetry.counters import READ_BUCKETS_SECONDS, Counters
from services.telemetry.domain.holdings import Holdings
from services.telemetry.event_publisher import EventPublisher
from services.telemetry.metrics.dcgm_names import FIELDS, Node, labels_of
from services.telemetry.metrics.pod_families import pod_families

PREFIX: Final = "gpusteward_telemetry"
NODE_LABEL: Final = ("Hostname",)


class AgentMetrics(Collector):
    """Renders what the agent holds at a scrape; calls no driver."""

    def __init__(
        self,
        agent: Agent,
        publisher: EventPublisher,
        holdings: Holdings,
        counters: Counters,
    ) -> None:
        self._agent, self._publisher = agent, publisher
        self._holdings, self._counters = holdings, counters
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format, version 0.0.4."""
        text = generate_latest(self._registry)
        for field in FIELDS:
            if field.kind == "counter":
                # The library ends every counter's name in _total, which DCGM's do not have.
                header = f"# TYPE {field.name} "
                text = text.replace(f"{header}gauge\n".encode(), f"{header}counter\n".encode())
        return text

    def collect(self) -> Iterator[Metric]:
        yield from self._gpus()
        yield from self._xids()
        yield from self._own()

    def _gpus(self) -> Iterator[Metric]:
        sample = self._agent.fresh
        if sample is None:
            return
        devices = {facts.uuid: facts for facts in self._agent.devices.facts}
        holders = self._holdings.holders
        node = self._node()
        rows = [(gpu, labels_of(gpu, devices, node, holders.get(gpu.uuid))) for gpu in sample.gpus]
        for field in FIELDS:
            family = Metric(field.name, field.help, "gauge")
            for gpu, labels in rows:
                if (value := field.read(gpu)) is not None:
                    family.add_sample(field.name, labels, float(value))
            if family.samples:
                yield family
        yield from pod_families(rows)

    def _xids(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "gpusteward_gpu_xid_errors",
            "XID errors since the agent started.",
            labels=("UUID", "gpu", "xid", *NODE_LABEL),
        )
        places = {facts.uuid: str(facts.index) for facts in self._agent.devices.facts}
        for (uuid, xid), count in self._counters.xids.items():
            family.add_metric((uuid, places.get(uuid, ""), str(xid), self._node().hostname), count)
        yield family

    def _own(self) -> Iterator[Metric]:
        agent, own_counters, hostname = self._agent, self._counters, (self._node().hostname,)
        counters: tuple[tuple[str, str, float], ...] = (
            ("samples", "Readings that succeeded.", own_counters.samples),
            ("failed_reads", "Readings that failed or hung.", own_counters.failed_reads),
            ("source_restarts", "Sources replaced.", max(0, own_counters.source_opens - 1)),
        )
        gauges: tuple[tuple[str, str, float], ...] = (
            ("pending_events", "Events the bus has not stored.", self._publisher.pending_count),
            ("sequence", "Number of the newest tick.", agent.sequence),
            ("interval_seconds", "Present sampling interval.", agent.current_interval_seconds),
            ("loop_lag_seconds", "Lateness of the last tick.", own_counters.loop_lag_seconds),
            ("loop_lag_max_seconds", "Worst of it so far.", own_counters.largest_loop_lag_seconds),
        )
        for name, text, value in counters:
            counter = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=NODE_LABEL)
            counter.add_metric(hostname, value)
            yield counter
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=NODE_LABEL)
            gauge.add_metric(hostname, value)
            yield gauge
        yield self._outbox_age()
        yield self._source_state()
        yield self._read_seconds()

    def _outbox_age(self) -> Metric:
        """Under the name that the gateway gives it for the services that it asks."""
        family = GaugeMetricFamily(
            "gpusteward_outbox_age_seconds",
            "Of the oldest unpublished event.",
            labels=("service", "node"),
        )
        family.add_metric(
            ("telemetry", self._publisher.node_id), self._publisher.oldest_pending_seconds
        )
        return family

    def _source_state(self) -> Metric:
        devices = self._agent.devices
        family = GaugeMetricFamily(
            f"{PREFIX}_source_up",
            "1 for the source that is read, 0 if it does not answer.",
            labels=("source", *NODE_LABEL),
        )
        family.add_metric(
            (devices.source.value, self._node().hostname),
            devices.failure is None,
        )
        return family

    def _read_seconds(self) -> Metric:
        family = HistogramMetricFamily(
            f"{PREFIX}_read_seconds", "Duration of a reading of all GPUs.", labels=NODE_LABEL
        )
        counts = list(accumulate(self._counters.read_buckets))
        bounds = [*(f"{bound:g}" for bound in READ_BUCKETS_SECONDS), "+Inf"]
        family.add_metric(
            (self._node().hostname,),
            list(zip(bounds, counts, strict=True)),
            sum_value=self._counters.read_seconds,
        )
        return family

    def _node(self) -> Node:
        devices = self._agent.devices
        return Node(self._publisher.hostname, devices.driver_version, devices.source)
