"""Samples from the stream into their partitions, each reading once."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from schemas.telemetry import GpuReading, GpuSampled
from services.results.partitions import Partitions
from shared.database import Connection, Database
from shared.errors import UnavailableError
from shared.logging import log

COLUMNS: Final = (
    "device_no",
    "observed_at",
    "boot_id",
    "sequence",
    "interval_seconds",
    "utilization_percent",
    "memory_total_mb",
    "memory_used_mb",
    "temperature_c",
    "power_draw_w",
    "energy_mj",
    "power_limit_w",
)
LARGEST_BIGINT: Final = 2**63 - 1
YEARS: Final = range(1970, 9999)  # a clock beyond these is broken

Row = tuple[
    int,
    datetime,
    UUID,
    int,
    float,
    float | None,
    int | None,
    int | None,
    float | None,
    float | None,
    int | None,
    float | None,
]
DeviceKey = tuple[str, str]
Facts = tuple[int, str, bool]
Spans = dict[str, tuple[datetime, datetime]]


@dataclass(slots=True)
class SampleStore:
    """Stores batches of samples. `stored` is told which nodes' samples of which times arrived."""

    database: Database
    partitions: Partitions
    stored: Callable[[Connection, Spans], Awaitable[None]]
    readings_stored: int = 0
    _devices: dict[DeviceKey, tuple[int, Facts]] = field(default_factory=dict)

    async def store(self, batch: list[GpuSampled]) -> None:
        """Keep a batch; what is there already stays as it is. Raises UnavailableError."""
        samples = [sample for sample in batch if _is_storable(sample)]
        if len(samples) < len(batch):
            log.warning("samples_unstorable", count=len(batch) - len(samples))
        if not samples:
            return
        await self.partitions.make({s.observed_at.astimezone(UTC).date() for s in samples})
        await self._know_devices(samples)
        rows = [self._row(sample, gpu) for sample in samples for gpu in sample.gpus]
        try:
            async with self.database.transaction() as connection:
                await _insert(connection, rows)
                await self.stored(connection, _spans(samples))
        except asyncpg.CheckViolationError as error:
            # Another instance dropped a partition that this one remembers.
            self.partitions.known.clear()
            raise UnavailableError(f"a partition is missing: {error}") from error
        self.readings_stored += len(rows)

    async def _know_devices(self, samples: Iterable[GpuSampled]) -> None:
        """Give every device its number, and take over what changed about it."""
        facts = {
            (sample.node_id, gpu.uuid): (gpu.index, gpu.name or "", sample.simulated)
            for sample in samples
            for gpu in sample.gpus
        }
        changed = {
            key: found
            for key, found in facts.items()
            if key not in self._devices or self._devices[key][1] != found
        }
        if not changed:
            return
        async with self.database.transaction() as connection:
            numbers = {
                key: await _upsert_device(connection, key, changed[key]) for key in sorted(changed)
            }
        self._devices.update({key: (number, changed[key]) for key, number in numbers.items()})

    def _row(self, sample: GpuSampled, gpu: GpuReading) -> Row:
        return (
            self._devices[sample.node_id, gpu.uuid][0],
            sample.observed_at,
            sample.boot_id,
            sample.sequence,
            sample.interval_seconds,
            _known_float(gpu.utilization_percent),
            _known_int(gpu.memory_total_mb),
            _known_int(gpu.memory_used_mb),
            _known_float(gpu.temperature_c),
            _known_float(gpu.power_draw_w),
            _known_int(gpu.energy_mj),
            _known_float(gpu.power_limit_w),
        )


def _is_storable(sample: GpuSampled) -> bool:
    """Whether Postgres has a place for its identity."""
    return (
        sample.sequence <= LARGEST_BIGINT
        and math.isfinite(sample.interval_seconds)
        and sample.observed_at.year in YEARS
        and all(gpu.index <= LARGEST_BIGINT and "\0" not in gpu.uuid for gpu in sample.gpus)
    )


def _known_float(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _known_int(value: int | None) -> int | None:
    return value if value is not None and value <= LARGEST_BIGINT else None


def _spans(samples: Iterable[GpuSampled]) -> Spans:
    spans: Spans = {}
    for sample in samples:
        first, last = spans.get(sample.node_id, (sample.observed_at, sample.observed_at))
        spans[sample.node_id] = (min(first, sample.observed_at), max(last, sample.observed_at))
    return spans


async def _upsert_device(connection: Connection, key: DeviceKey, facts: Facts) -> Any:
    node_id, device_uuid = key
    index, name, simulated = facts
    return await connection.fetchval(
        "INSERT INTO device (node_id, device_uuid, device_index, name, simulated)"
        " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (node_id, device_uuid) DO UPDATE"
        " SET device_index = $3, name = coalesce(nullif($4, ''), device.name), simulated = $5"
        " RETURNING device_no",
        node_id,
        device_uuid,
        index,
        name.replace("\0", ""),
        simulated,
    )


async def _insert(connection: Connection, rows: Sequence[Row]) -> None:
    """COPY straight in, which is right nearly always; merge when some of it is there already."""
    if not rows:
        return
    try:
        async with connection.transaction():
            await connection.copy_records_to_table("sample", records=rows, columns=COLUMNS)
    except asyncpg.UniqueViolationError:
        await _merge(connection, rows)


async def _merge(connection: Connection, rows: Sequence[Row]) -> None:
    columns = ", ".join(COLUMNS)
    await connection.execute(
        "CREATE TEMPORARY TABLE IF NOT EXISTS arrived (LIKE sample) ON COMMIT DELETE ROWS"
    )
    await connection.copy_records_to_table("arrived", records=rows, columns=COLUMNS)
    # In one order everywhere: two instances that merge the same rows must not wait for each other.
    await connection.execute(
        f"INSERT INTO sample ({columns}) SELECT {columns} FROM arrived"
        " ORDER BY device_no, observed_at, boot_id, sequence ON CONFLICT DO NOTHING"
    )
