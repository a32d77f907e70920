"""Samples from the stream into their partitions, each reading once."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from schemas.base import MAX_INTEGER
from schemas.telemetry.readings import GpuPod, GpuProcess, GpuReading, GpuSampled
from services.results.domain.reading import Condition, Tenant
from services.results.samples import pod_uses
from services.results.samples.agent_boots import claim
from services.results.samples.copied_rows import BEGIN, COLUMNS, END, device_values, tick_values
from services.results.samples.partitions import DAYS_AHEAD, Partitions
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Connection, Database, to_json

UPSERT_DEVICE: Final = """
INSERT INTO device (node_id, device_uuid, device_index, name, simulated, total_memory_mb)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (node_id, device_uuid) DO UPDATE
    SET device_index = $3, name = coalesce(nullif($4, ''), device.name), simulated = $5,
        total_memory_mb = coalesce($6, device.total_memory_mb)
RETURNING device_no
"""

UPSERT_CONDITION: Final = """
INSERT INTO condition (facts) VALUES ($1)
ON CONFLICT (md5(facts)) DO UPDATE SET used_at = now() RETURNING condition_no
"""
# Remembered that many and that long; then they are looked up again, and so noted as in use.
MAX_CONDITIONS: Final = 10_000
CONDITIONS_SECONDS: Final = 3600.0

CREATE_ARRIVED: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS arrived (LIKE sample) ON COMMIT DELETE ROWS
"""
EMPTY_ARRIVED: Final = "TRUNCATE arrived"

# In one order everywhere: two instances that merge the same rows must not wait for each other.
MERGE_ARRIVED: Final = f"""
INSERT INTO {{partition}} ({", ".join(COLUMNS)}) SELECT {", ".join(COLUMNS)} FROM arrived
ORDER BY device_no, observed_at, boot_id, sequence ON CONFLICT DO NOTHING
"""

FIRST_YEAR: Final = 1970  # a clock before it is broken, as is one so far ahead of ours
MAX_LEAD: Final = timedelta(days=DAYS_AHEAD)

DeviceKey = tuple[str, str]
DeviceRow = tuple[int, str | None, bool, int | None]
UNKNOWN_DEVICE: Final = (0, None)
UNKNOWN_CONDITION: Final = 0  # Postgres counts from 1
# What a condition is made of, cheaper to look up than to put in order.
Found = tuple[
    tuple[str, ...] | None,
    tuple[tuple[UUID | None, str | None], ...] | None,
    tuple[GpuPod, ...] | None,
]
Spans = dict[str, tuple[datetime, datetime]]
Insert = Callable[[Connection, str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _News:
    """What of a batch has no number yet, or has changed."""

    devices: dict[DeviceKey, DeviceRow] = field(default_factory=dict)
    conditions: dict[Found, GpuReading] = field(default_factory=dict)


@dataclass(slots=True)
class SampleStore:
    """Stores batches of samples. `stored` is called with the time span of each node's samples,
    `forward` with those that are stored now.
    """

    database: Database
    partitions: Partitions
    stored: Callable[[Connection, Spans], Awaitable[None]]
    forward: Callable[[list[GpuSampled]], None] | None = None
    _devices: dict[DeviceKey, tuple[int, DeviceRow]] = field(default_factory=dict)
    _conditions: dict[Found, int | None] = field(default_factory=dict)
    _conditions_until: float = 0.0

    async def store(self, batch: list[GpuSampled]) -> None:
        """Store a batch; readings that are there already stay. Raises UnavailableError."""
        latest = utcnow() + MAX_LEAD
        samples = [sample for sample in batch if _is_storable(sample, latest)]
        if len(samples) < len(batch):
            log.warning("samples_unstorable", count=len(batch) - len(samples))
        if not samples:
            return
        await self.partitions.make({_day(sample) for sample in samples})
        now = asyncio.get_running_loop().time()
        if len(self._conditions) > MAX_CONDITIONS or now >= self._conditions_until:
            self._conditions.clear()
            self._conditions_until = now + CONDITIONS_SECONDS
        rows: dict[int, bytes] = {}
        unstored = samples
        while unstored:  # another batch may have cleared conditions
            news = _News()
            rows |= {
                id(sample): row
                for sample in unstored
                if (row := self._rows(sample, news)) is not None
            }
            await self._register_devices(news.devices)
            await self._register_conditions(news.conditions)
            unstored = [sample for sample in unstored if id(sample) not in rows]
        try:
            try:
                fresh = await self._insert(samples, rows, _copy)
            except asyncpg.UniqueViolationError:
                # An earlier release has stored some of it without a note.
                fresh = await self._insert(samples, rows, _merge)
        except asyncpg.UndefinedTableError as error:
            # Another instance dropped a partition that this one remembers.
            self.partitions.known_days.clear()
            raise UnavailableError(f"a partition is missing: {error}") from error
        if self.forward is not None:
            self.forward(fresh)

    async def _insert(
        self, samples: list[GpuSampled], rows: Mapping[int, bytes], insert: Insert
    ) -> list[GpuSampled]:
        """Insert in one transaction with the note that they are stored; return the samples that
        were new.
        """
        async with self.database.transaction() as connection:
            fresh = await claim(connection, samples, self.partitions.oldest_kept())
            of_days: dict[date, list[bytes]] = {}
            for sample in fresh:
                of_days.setdefault(_day(sample), []).append(rows[id(sample)])
            for day, parts in of_days.items():
                partition = self.partitions.table.name_of(day)
                await insert(connection, partition, b"".join((BEGIN, *parts, END)))
            if fresh:
                await pod_uses.add(connection, fresh, self._number_of)
                await self.stored(connection, _spans(fresh))
        return fresh

    def _number_of(self, node_id: str, uuid: str) -> int:
        return self._devices[node_id, uuid][0]

    async def _register_devices(self, changed: Mapping[DeviceKey, DeviceRow]) -> None:
        """Give every device its number, and store what changed about it."""
        if not changed:
            return
        async with self.database.transaction() as connection:
            numbers = {
                key: await connection.fetchval(UPSERT_DEVICE, *key, *_columns_of(row))
                for key, row in sorted(changed.items(), key=lambda item: item[0])
            }
        self._devices.update({key: (number, changed[key]) for key, number in numbers.items()})

    async def _register_conditions(self, unknown: Mapping[Found, GpuReading]) -> None:
        """Give what GPUs are in its number."""
        if not unknown:
            return
        facts = {
            finding: to_json(condition)
            for finding, gpu in unknown.items()
            if (condition := condition_of(gpu)) is not None
        }
        async with self.database.transaction() as connection:
            numbers = {
                text: await connection.fetchval(UPSERT_CONDITION, text)
                for text in sorted(set(facts.values()))
            }
        for finding in unknown:
            self._conditions[finding] = numbers[facts[finding]] if finding in facts else None

    def _rows(self, sample: GpuSampled, news: _News) -> bytes | None:
        """Encode one tick's rows in the binary form of COPY. None while a number that they need is
        unknown.
        """
        node_id, simulated = sample.node_id, sample.simulated
        devices, conditions = self._devices, self._conditions
        rows = [b""]
        is_complete = True
        for gpu in sample.gpus:
            device_no, known_row = devices.get((node_id, gpu.uuid), UNKNOWN_DEVICE)
            if known_row != (facts := (gpu.index, gpu.name, simulated, gpu.memory_total_mb)):
                news.devices[node_id, gpu.uuid] = facts
                is_complete &= known_row is not None
            condition_no = conditions.get(finding := _finding_of(gpu), UNKNOWN_CONDITION)
            if condition_no == UNKNOWN_CONDITION:
                news.conditions[finding] = gpu
                is_complete = False
            rows.append(device_values(device_no, condition_no, gpu))
        return tick_values(sample).join(rows) if is_complete else None


def _columns_of(row: DeviceRow) -> tuple[int, str, bool, int | None]:
    """Return the columns of a device; what Postgres cannot hold is unknown."""
    index, name, simulated, memory_mb = row
    is_known = memory_mb is not None and memory_mb <= MAX_INTEGER
    return index, (name or "").replace("\0", ""), simulated, memory_mb if is_known else None


def _finding_of(gpu: GpuReading) -> Found:
    processes = gpu.processes
    if not processes:
        return gpu.throttle_reasons, None if processes is None else (), gpu.pods
    tenants = tuple([(process.reservation_id, process.name) for process in processes])
    return gpu.throttle_reasons, tenants, gpu.pods


def condition_of(gpu: GpuReading) -> Condition | None:
    """Return the condition of a GPU; None if nothing of it is known."""
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


def _is_storable(sample: GpuSampled, latest: datetime) -> bool:
    """Return True if Postgres can store the sample. The partition of a day that never comes would
    never be dropped.
    """
    return (
        math.isfinite(sample.interval_seconds)
        and sample.sequence < MAX_INTEGER
        and sample.observed_at.year >= FIRST_YEAR
        and sample.observed_at <= latest
        and all("\0" not in gpu.uuid for gpu in sample.gpus)
    )


def _day(sample: GpuSampled) -> date:
    return sample.observed_at.astimezone(UTC).date()


def _spans(samples: Iterable[GpuSampled]) -> Spans:
    spans: Spans = {}
    for sample in samples:
        first, last = spans.get(sample.node_id, (sample.observed_at, sample.observed_at))
        spans[sample.node_id] = (min(first, sample.observed_at), max(last, sample.observed_at))
    return spans


async def _merge(connection: Connection, partition: str, rows: bytes) -> None:
    await connection.execute(CREATE_ARRIVED)
    await connection.execute(EMPTY_ARRIVED)
    await _copy(connection, "arrived", rows)
    await connection.execute(MERGE_ARRIVED.format(partition=partition))


async def _copy(connection: Connection, table: str, rows: bytes) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield rows

    await connection.copy_to_table(table, source=parts(), columns=COLUMNS, format="binary")
