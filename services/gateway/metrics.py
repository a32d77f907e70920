"""The gateway's own metrics for Prometheus."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.gateway.context import Gateway


def text_of(gateway: Gateway) -> bytes:
    """In Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_GatewayCollector(gateway))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@dataclass(frozen=True, slots=True, eq=False)
class _GatewayCollector(Collector):
    gateway: Gateway

    def collect(self) -> Iterator[Metric]:
        live, log = self.gateway.live, self.gateway.log
        connected = self.gateway.bus.is_connected
        yield GaugeMetricFamily("gpusteward_bus_connected", "1 if the bus answers", connected)
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
