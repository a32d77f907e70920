"""What pods that share a GPU use of it, added up by minutes as samples are stored."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.telemetry.readings import GpuSampled, PodUse
from services.results.domain.pods import pod_id_of
from services.results.domain.rollup import MINUTE, start_of
from shared.postgres.database import Connection

BUSY_PERCENT: Final = 1.0

# Only of samples that are stored now, in their transaction, so that each counts once.
ADD: Final = """
INSERT INTO pod_minute AS known (pod_id, device_no, at, busy,
    utilization_percent_count, utilization_percent_min, utilization_percent_max,
    utilization_percent_sum, memory_used_mb_count, memory_used_mb_min, memory_used_mb_max,
    memory_used_mb_sum)
SELECT * FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::bigint[], $5::bigint[],
    $6::float8[], $7::float8[], $8::float8[], $9::bigint[], $10::float8[], $11::float8[],
    $12::float8[])
ORDER BY 1, 2, 3
ON CONFLICT (pod_id, device_no, at) DO UPDATE SET busy = known.busy + excluded.busy,
    utilization_percent_count = known.utilization_percent_count
        + excluded.utilization_percent_count,
    utilization_percent_min = least(known.utilization_percent_min,
        excluded.utilization_percent_min),
    utilization_percent_max = greatest(known.utilization_percent_max,
        excluded.utilization_percent_max),
    utilization_percent_sum = known.utilization_percent_sum + excluded.utilization_percent_sum,
    memory_used_mb_count = known.memory_used_mb_count + excluded.memory_used_mb_count,
    memory_used_mb_min = least(known.memory_used_mb_min, excluded.memory_used_mb_min),
    memory_used_mb_max = greatest(known.memory_used_mb_max, excluded.memory_used_mb_max),
    memory_used_mb_sum = known.memory_used_mb_sum + excluded.memory_used_mb_sum
"""


class _Values(Struct):
    count: int = 0
    least: float | None = None
    most: float | None = None
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)
        self.total += value


class _Minute(Struct):
    utilization: _Values
    memory: _Values
    busy: int = 0

    def add(self, use: PodUse) -> None:
        if use.utilization_percent is not None:
            self.utilization.add(use.utilization_percent)
            self.busy += use.utilization_percent >= BUSY_PERCENT
        if use.memory_used_mb is not None:
            self.memory.add(use.memory_used_mb)


async def add(
    connection: Connection, samples: Iterable[GpuSampled], number_of: Callable[[str, str], int]
) -> None:
    """Add what these samples tell; `number_of` is a device's, by its node and UUID."""
    minutes: dict[tuple[UUID, int, datetime], _Minute] = {}
    for sample in samples:
        for gpu in sample.gpus:
            if not gpu.pod_uses:
                continue
            minute = start_of(sample.observed_at.astimezone(UTC), MINUTE)
            number = number_of(sample.node_id, gpu.uuid)
            for use in gpu.pod_uses:
                key = (pod_id_of("", "", use.uid), number, minute)
                minutes.setdefault(key, _Minute(_Values(), _Values())).add(use)
    if minutes:
        rows = [
            (*key, minute.busy, *_columns(minute.utilization), *_columns(minute.memory))
            for key, minute in minutes.items()
        ]
        await connection.execute(ADD, *map(list, zip(*rows, strict=True)))


def _columns(values: _Values) -> tuple[int, float | None, float | None, float]:
    return values.count, values.least, values.most, values.total
