"""Samples from the stream into their partitions, each reading once."""

import asyncio
import hashlib
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
from services.results.samples.copied_rows import BEGIN, END, TICK_COLUMNS, tick_row
from services.results.samples.partitions import DAYS_AHEAD, Partitions
from shared.clock import utcnow
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Connection, Database, to_json
from shared.waiting import take_turns

# In one order everywhere: two instances that store the same must not wait for each other.
UPSERT_DEVICES: Final = """
INSERT INTO device AS known
    (node_id, device_uuid, device_index, name, simulated, total_memory_mb)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::boolean[], $6::bigint[])
ORDER BY 1, 2
ON CONFLICT (node_id, device_uuid) DO UPDATE
    SET device_index = excluded.device_index, simulated = excluded.simulated,
        name = coalesce(nullif(excluded.name, ''), known.name),
        total_memory_mb = coalesce(excluded.total_memory_mb, known.total_memory_mb)
RETURNING node_id, device_uuid, device_no
"""

UPSERT_CONDITIONS: Final = """
INSERT INTO condition (facts) SELECT * FROM unnest($1::text[]) ORDER BY 1
ON CONFLICT (md5(facts)) DO UPDATE SET used_at = now() RETURNING facts, condition_no
"""
# Remembered that many and that long; then they are looked up again, and so noted as in use.
MAX_CONDITIONS: Final = 10_000
CONDITIONS_SECONDS: Final = 3600.0

# A device that a tick has twice counts as the first of them.
INSERT_PLACES: Final = """
INSERT INTO device_place (set_id, device_no, place)
SELECT $1, device_no, place FROM unnest($2::int[]) WITH ORDINALITY AS of_set (device_no, place)
ORDER BY place ON CONFLICT DO NOTHING
"""

FIRST_YEAR: Final = 1970  # a clock before it is broken, as is one so far ahead of ours
MAX_LEAD: Final = timedelta(days=DAYS_AHEAD)

DeviceKey = tuple[str, str]
DeviceRow = tuple[int, str | None, bool, int | None]
SetKey = tuple[str, tuple[str, ...]]  # a node's devices in their order
UNKNOWN_CONDITION: Final = 0  # Postgres counts from 1
# What a condition is made of, cheaper to look up than to put in order.
FoundTenants = tuple[tuple[UUID | None, str | None], ...]
Found = tuple[tuple[str, ...] | None, FoundTenants | None, tuple[GpuPod, ...] | None]
Spans = dict[str, tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class _News:
    """What of a batch has no number yet, or has changed."""

    devices: dict[DeviceKey, DeviceRow] = field(default_factory=dict)
    sets: set[SetKey] = field(default_factory=set)
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
    _sets: dict[SetKey, bytes] = field(default_factory=dict)
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
        unstored, news = samples, _News()
        for newest in {sample.node_id: sample for sample in samples}.values():
            self._compare_devices(newest, news)
        while unstored:  # another batch may have cleared conditions
            rows |= await self._encode_rows(unstored, news)
            await self._register_devices(news.devices)
            await self._register_sets(news.sets)
            await self._register_conditions(news.conditions)
            unstored, news = [sample for sample in unstored if id(sample) not in rows], _News()
        try:
            fresh = await self._insert(samples, rows)
        except asyncpg.UndefinedTableError as error:
            # Another instance dropped a partition that this one remembers.
            self.partitions.known_days.clear()
            raise UnavailableError(f"a partition is missing: {error}") from error
        if self.forward is not None:
            self.forward(fresh)

    async def _insert(
        self, samples: list[GpuSampled], rows: Mapping[int, bytes]
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
                await _copy(connection, partition, b"".join((BEGIN, *parts, END)))
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
        columns = zip(*((*key, *_columns_of(row)) for key, row in changed.items()), strict=True)
        async with self.database.transaction() as connection:
            rows = await connection.fetch(UPSERT_DEVICES, *map(list, columns))
        for row in rows:
            key = row["node_id"], row["device_uuid"]
            self._devices[key] = (row["device_no"], changed[key])

    async def _register_sets(self, unknown: Iterable[SetKey]) -> None:
        """Note the place of each device in its set, whose id follows from their numbers."""
        numbers = {
            (node_id, uuids): [self._number_of(node_id, uuid) for uuid in uuids]
            for node_id, uuids in unknown
        }
        if not numbers:
            return
        ids = {
            key: hashlib.md5(repr(of_set).encode(), usedforsecurity=False).digest()
            for key, of_set in numbers.items()
        }
        async with self.database.transaction() as connection:
            places = sorted((UUID(bytes=ids[key]), of_set) for key, of_set in numbers.items())
            await connection.executemany(INSERT_PLACES, places)
        self._sets.update(ids)

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
            rows = await connection.fetch(UPSERT_CONDITIONS, list(set(facts.values())))
        numbers = {row["facts"]: row["condition_no"] for row in rows}
        for finding in unknown:
            self._conditions[finding] = numbers[facts[finding]] if finding in facts else None

    async def _encode_rows(self, samples: Iterable[GpuSampled], news: _News) -> dict[int, bytes]:
        """Encode the ticks of which every number is known."""
        rows: dict[int, bytes] = {}
        async for sample in take_turns(samples):
            if (row := self._row(sample, news)) is not None:
                rows[id(sample)] = row
        return rows

    def _row(self, sample: GpuSampled, news: _News) -> bytes | None:
        """Encode a tick in the binary form of COPY. None while a number in it is unknown."""
        if not sample.gpus:
            return b""
        set_id, conditions = self._set_of(sample, news), self._conditions
        condition_nos = []
        for gpu in sample.gpus:
            processes = gpu.processes
            tenants: FoundTenants | None = None if processes is None else ()
            if processes:
                tenants = tuple([(p.reservation_id, p.name) for p in processes])
            finding = (gpu.throttle_reasons, tenants, gpu.pods)
            condition_no = conditions.get(finding, UNKNOWN_CONDITION)
            if condition_no == UNKNOWN_CONDITION:
                news.conditions[finding] = gpu
                set_id = None
            condition_nos.append(condition_no)
        return tick_row(sample, set_id, condition_nos) if set_id is not None else None

    def _set_of(self, sample: GpuSampled, news: _News) -> bytes | None:
        """Return the id of the tick's set of devices; None while it is unknown."""
        key = (sample.node_id, tuple([gpu.uuid for gpu in sample.gpus]))
        set_id = self._sets.get(key)
        if set_id is None:
            news.sets.add(key)
            self._compare_devices(sample, news)
        return set_id

    def _compare_devices(self, sample: GpuSampled, news: _News) -> None:
        """Note the devices that are unknown, or not as they were."""
        for gpu in sample.gpus:
            key = (sample.node_id, gpu.uuid)
            row = (gpu.index, gpu.name, sample.simulated, gpu.memory_total_mb)
            if key not in self._devices or self._devices[key][1] != row:
                news.devices.setdefault(key, row)


def _columns_of(row: DeviceRow) -> tuple[int, str, bool, int | None]:
    """Return the columns of a device; what Postgres cannot hold is unknown."""
    index, name, simulated, memory_mb = row
    is_known = memory_mb is not None and memory_mb <= MAX_INTEGER
    return index, (name or "").replace("\0", ""), simulated, memory_mb if is_known else None


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
        and "\0" not in "".join([gpu.uuid for gpu in sample.gpus])
    )


def _day(sample: GpuSampled) -> date:
    return sample.observed_at.astimezone(UTC).date()


def _spans(samples: Iterable[GpuSampled]) -> Spans:
    spans: Spans = {}
    for sample in samples:
        at = sample.observed_at
        first, last = spans.get(sample.node_id, (at, at))
        if at <= first:
            spans[sample.node_id] = (at, last)
        elif at > last:
            spans[sample.node_id] = (first, at)
    return spans


async def _copy(connection: Connection, table: str, rows: bytes) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield rows

    await connection.copy_to_table(table, source=parts(), columns=TICK_COLUMNS, format="binary")
