"""Samples from the stream into their partitions, each reading once."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final

import asyncpg

from schemas.base import LARGEST_INTEGER
from schemas.telemetry import GpuProcess, GpuReading, GpuSampled
from services.results.agent_boots import claim
from services.results.domain.reading import Condition, Tenant
from services.results.partitions import Partitions
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Connection, Database, to_json

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
    "ecc_corrected",
    "ecc_uncorrected",
    "condition_no",
)

UPSERT_DEVICE: Final = """
INSERT INTO device (node_id, device_uuid, device_index, name, simulated)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (node_id, device_uuid) DO UPDATE
    SET device_index = $3, name = coalesce(nullif($4, ''), device.name), simulated = $5
RETURNING device_no
"""

UPSERT_CONDITION: Final = """
INSERT INTO condition AS known (facts) VALUES ($1)
ON CONFLICT (md5(facts)) DO UPDATE SET facts = known.facts RETURNING condition_no
"""
MOST_CONDITIONS: Final = 10_000  # remembered; the others are looked up again

CREATE_ARRIVED: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS arrived (LIKE sample) ON COMMIT DELETE ROWS
"""
EMPTY_ARRIVED: Final = "TRUNCATE arrived"

# In one order everywhere: two instances that merge the same rows must not wait for each other.
MERGE_ARRIVED: Final = f"""
INSERT INTO {{partition}} ({", ".join(COLUMNS)}) SELECT {", ".join(COLUMNS)} FROM arrived
ORDER BY device_no, observed_at, boot_id, sequence ON CONFLICT DO NOTHING
"""

YEARS: Final = range(1970, 9999)  # a clock beyond these is broken

Row = tuple[object, ...]  # the values of `COLUMNS`
DeviceKey = tuple[str, str]
DeviceRow = tuple[int, str, bool]
Spans = dict[str, tuple[datetime, datetime]]


@dataclass(slots=True)
class SampleStore:
    """Stores batches of samples. `stored` is called with the time span of each node's samples."""

    database: Database
    partitions: Partitions
    stored: Callable[[Connection, Spans], Awaitable[None]]
    readings_stored: int = 0
    _devices: dict[DeviceKey, tuple[int, DeviceRow]] = field(default_factory=dict)
    _conditions: dict[Condition, int] = field(default_factory=dict)

    async def store(self, batch: list[GpuSampled]) -> None:
        """Store a batch; readings that are there already stay. Raises UnavailableError."""
        samples = [sample for sample in batch if _is_storable(sample)]
        if len(samples) < len(batch):
            log.warning("samples_unstorable", count=len(batch) - len(samples))
        if not samples:
            return
        await self.partitions.make({_day(sample) for sample in samples})
        await self._register_devices(samples)
        await self._register_conditions(samples)
        try:
            async with self.database.transaction() as connection:
                fresh = await claim(connection, samples, self.partitions.oldest_kept())
                if not fresh:
                    return
                rows = self._rows(fresh)
                for day, of_day in rows.items():
                    await _insert(connection, self.partitions.table.name_of(day), of_day)
                await self.stored(connection, _spans(fresh))
        except asyncpg.UndefinedTableError as error:
            # Another instance dropped a partition that this one remembers.
            self.partitions.known.clear()
            raise UnavailableError(f"a partition is missing: {error}") from error
        self.readings_stored += sum(len(of_day) for of_day in rows.values())

    async def _register_devices(self, samples: Iterable[GpuSampled]) -> None:
        """Give every device its number, and store what changed about it."""
        facts = {
            (sample.node_id, gpu.uuid): (
                gpu.index,
                (gpu.name or "").replace("\0", ""),
                sample.simulated,
            )
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
                key: await connection.fetchval(UPSERT_DEVICE, *key, *changed[key])
                for key in sorted(changed)
            }
        self._devices.update({key: (number, changed[key]) for key, number in numbers.items()})

    async def _register_conditions(self, samples: Iterable[GpuSampled]) -> None:
        """Give what GPUs are in its number."""
        found = {condition_of(gpu) for sample in samples for gpu in sample.gpus}
        if len(self._conditions) > MOST_CONDITIONS:
            self._conditions.clear()
        unknown = {c: to_json(c) for c in found if c is not None and c not in self._conditions}
        if not unknown:
            return
        async with self.database.transaction() as connection:
            numbers = {
                condition: await connection.fetchval(UPSERT_CONDITION, facts)
                for condition, facts in sorted(unknown.items(), key=lambda item: item[1])
            }
        self._conditions.update(numbers)

    def _rows(self, samples: Iterable[GpuSampled]) -> dict[date, list[Row]]:
        rows: dict[date, list[Row]] = {}
        for sample in samples:
            rows.setdefault(_day(sample), []).extend(self._row(sample, gpu) for gpu in sample.gpus)
        return rows

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
            _known_int(gpu.ecc_corrected),
            _known_int(gpu.ecc_uncorrected),
            self._conditions[condition] if (condition := condition_of(gpu)) is not None else None,
        )


def condition_of(gpu: GpuReading) -> Condition | None:
    """None if nothing of it is known."""
    if gpu.throttle_reasons is None and gpu.processes is None and gpu.pods is None:
        return None
    return Condition(gpu.throttle_reasons, _tenants(gpu.processes), gpu.pods)


def _tenants(processes: tuple[GpuProcess, ...] | None) -> tuple[Tenant, ...] | None:
    if not processes:
        return () if processes is not None else None
    tenants = {
        Tenant(process.reservation_id, None if process.reservation_id else process.name)
        for process in processes
    }
    return tuple(sorted(tenants, key=str))


def _is_storable(sample: GpuSampled) -> bool:
    """Whether Postgres has a place for its identity."""
    return (
        math.isfinite(sample.interval_seconds)
        and sample.sequence < LARGEST_INTEGER
        and sample.observed_at.year in YEARS
        and all("\0" not in gpu.uuid for gpu in sample.gpus)
    )


def _day(sample: GpuSampled) -> date:
    return sample.observed_at.astimezone(UTC).date()


def _known_float(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _known_int(value: int | None) -> int | None:
    return value if value is not None and value <= LARGEST_INTEGER else None


def _spans(samples: Iterable[GpuSampled]) -> Spans:
    spans: Spans = {}
    for sample in samples:
        first, last = spans.get(sample.node_id, (sample.observed_at, sample.observed_at))
        spans[sample.node_id] = (min(first, sample.observed_at), max(last, sample.observed_at))
    return spans


async def _insert(connection: Connection, partition: str, rows: Sequence[Row]) -> None:
    """COPY straight in; merge where an earlier release has stored some of it without a note."""
    if not rows:
        return
    try:
        async with connection.transaction():
            await connection.copy_records_to_table(partition, records=rows, columns=COLUMNS)
    except asyncpg.UniqueViolationError:
        await connection.execute(CREATE_ARRIVED)
        await connection.execute(EMPTY_ARRIVED)
        await connection.copy_records_to_table("arrived", records=rows, columns=COLUMNS)
        await connection.execute(MERGE_ARRIVED.format(partition=partition))
