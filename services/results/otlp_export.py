"""Stored samples on to an OpenTelemetry collector, as far as it takes them."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import isfinite
from typing import Final, NamedTuple

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    NumberDataPoint,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import MetricExportResult

from schemas.telemetry.readings import GpuReading, GpuSampled
from services.results.domain import otlp_names
from services.results.domain.otlp_names import INSTRUMENTS, Instrument, Kind
from shared.logging import log
from shared.postgres.database import Database

SEND_EVERY_SECONDS: Final = 1.0
SEND_SECONDS: Final = 3.0  # with every repetition
MAX_READINGS: Final = 1_000  # in one request
MAX_WAITING: Final = 20_000  # about 20 MB
MICROSECOND_NS: Final = 1_000
SCOPE: Final = "gpusteward"

SELECT_HOLDERS: Final = """
SELECT node_id, device_uuid, max(granted_at) AS since_at,
       string_agg(DISTINCT reservation_id::text, ',' ORDER BY reservation_id::text) AS reservation,
       string_agg(DISTINCT experiment_id::text, ',' ORDER BY experiment_id::text) AS experiment,
       string_agg(DISTINCT phase, ',' ORDER BY phase) AS phase
FROM device_holding JOIN device USING (device_no)
LEFT JOIN running_attempt USING (reservation_id)
WHERE device_holding.ended_at = 'infinity' AND granted_at IS NOT NULL
GROUP BY node_id, device_uuid
"""


class Holder(NamedTuple):
    """Who has a device now, since when, and what that is in."""

    since_at: datetime
    attributes: Mapping[str, str]


Holders = Mapping[tuple[str, str], Holder]


@dataclass(slots=True)
class OtlpExport:
    """Sends to the collector at `endpoint`, a URL without a path.

    What it does not take in time is dropped and counted: storing samples never waits for it.
    """

    database: Database
    endpoint: str
    dropped_readings: int = 0
    _waiting: deque[GpuSampled] = field(default_factory=deque)
    _waiting_readings: int = 0

    def put(self, samples: Iterable[GpuSampled]) -> None:
        """Have them sent; the oldest that wait make room."""
        for sample in samples:
            self._waiting.append(sample)
            self._waiting_readings += len(sample.gpus)
        while self._waiting_readings > MAX_WAITING:
            self.dropped_readings += self._take_written()

    async def run(self) -> None:
        """Send until cancelled. Raises UnavailableError when Postgres is down."""
        exporter = OTLPMetricExporter(
            endpoint=f"{self.endpoint.rstrip('/')}/v1/metrics",
            timeout=SEND_SECONDS,
            compression=Compression.Gzip,
        )
        reported = 0
        try:
            while True:
                await asyncio.sleep(SEND_EVERY_SECONDS)
                while self._waiting:
                    await self._send(exporter)
                if self.dropped_readings > reported:
                    reported = self.dropped_readings
                    log.warning("otlp_readings_dropped", total=reported, endpoint=self.endpoint)
        finally:
            exporter.shutdown()

    async def _send(self, exporter: OTLPMetricExporter) -> None:
        holders = await self._holders()
        batch: list[GpuSampled] = []
        readings = 0
        while self._waiting and readings < MAX_READINGS:
            batch.append(self._waiting[0])
            readings += self._take_written()
        result = await asyncio.to_thread(_export, exporter, batch, holders)
        if result is not MetricExportResult.SUCCESS:
            self.dropped_readings += readings

    def _take_written(self) -> int:
        readings = len(self._waiting.popleft().gpus)
        self._waiting_readings -= readings
        return readings

    async def _holders(self) -> Holders:
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_HOLDERS)
        names = {
            "reservation": otlp_names.RESERVATION,
            "experiment": otlp_names.EXPERIMENT,
            "phase": otlp_names.PHASE,
        }
        return {
            (row["node_id"], row["device_uuid"]): Holder(
                row["since_at"], {names[key]: row[key] for key in names if row[key] is not None}
            )
            for row in rows
        }


def _export(
    exporter: OTLPMetricExporter, samples: Sequence[GpuSampled], holders: Holders
) -> MetricExportResult:
    # `export` takes structs of the SDK, which cost five times as much.
    return exporter._export_batch(request_of(samples, holders))  # noqa: SLF001  # as said above


def request_of(samples: Iterable[GpuSampled], holders: Holders) -> ExportMetricsServiceRequest:
    """Build the export request of samples, by node and instrument."""
    of_node: dict[str, list[tuple[GpuReading, NumberDataPoint]]] = {}
    for sample in samples:
        at_ns = round(sample.observed_at.timestamp() * 1e6) * MICROSECOND_NS
        readings = of_node.setdefault(sample.node_id, [])
        for gpu in sample.gpus:
            attributes = _pairs(_attributes(sample, gpu, holders))
            readings.append((gpu, NumberDataPoint(attributes=attributes, time_unix_nano=at_ns)))
    request = ExportMetricsServiceRequest()
    for node_id, readings in of_node.items():
        of_resource = request.resource_metrics.add()
        of_resource.resource.attributes.extend(
            _pairs({"service.name": "gpusteward", otlp_names.HOST: node_id})
        )
        scope = of_resource.scope_metrics.add()
        scope.scope.name = SCOPE
        for instrument in INSTRUMENTS:
            _add_metric(scope, instrument, readings)
    return request


def _attributes(sample: GpuSampled, gpu: GpuReading, holders: Holders) -> Mapping[str, str | bool]:
    holder = holders.get((sample.node_id, gpu.uuid))
    attributes = holder.attributes if holder and sample.observed_at >= holder.since_at else {}
    return {
        otlp_names.ID: gpu.uuid,
        otlp_names.NAME: gpu.name or "",
        otlp_names.TYPE: otlp_names.GPU,
        otlp_names.SIMULATED: sample.simulated,
        **attributes,
    }


def _pairs(attributes: Mapping[str, str | bool]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(bool_value=value)
            if isinstance(value, bool)
            else AnyValue(string_value=value),
        )
        for key, value in attributes.items()
    ]


def _add_metric(
    scope: ScopeMetrics,
    instrument: Instrument,
    readings: Iterable[tuple[GpuReading, NumberDataPoint]],
) -> None:
    known_points = [
        (point, value)
        for gpu, point in readings
        if (value := instrument.read(gpu)) is not None and isfinite(value)
    ]
    if not known_points:
        return
    metric = scope.metrics.add(name=instrument.name, unit=instrument.unit)
    points = metric.gauge.data_points
    if instrument.kind is not Kind.GAUGE:
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = instrument.kind is Kind.COUNTER
        points = metric.sum.data_points
    for known_point, value in known_points:
        point = points.add()
        point.CopyFrom(known_point)
        point.as_double = value
