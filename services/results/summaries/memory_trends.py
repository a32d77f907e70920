"""What the memory of an attempt's GPUs did before it failed for want of memory."""

from datetime import datetime, timedelta
from typing import Final

from schemas.executor.attempts import AttemptFinished, AttemptPhase, Failure, FailureKind
from schemas.results.measurements import GpuMemoryTrend
from services.results.domain.packed_spans import spans_of
from services.results.samples.conditions import devices_of
from shared.failures import findings
from shared.postgres.database import Connection

OUT_OF_MEMORY: Final = frozenset({FailureKind.OUT_OF_MEMORY, FailureKind.GPU_OUT_OF_MEMORY})
ENDING: Final = frozenset({AttemptPhase.DRAINING, AttemptPhase.TEARING_DOWN})
SHOWN: Final = timedelta(minutes=1)
GROWTH_SHARE: Final = 0.02  # of a GPU's memory

SELECT_TREND: Final = f"""
SELECT node_id, device_index AS index, name, simulated, max(memory_total_mb) AS total_mb,
       (array_agg(memory_used_mb ORDER BY observed_at, sequence))[1] AS start_mb,
       max(memory_used_mb) AS peak_mb,
       (array_agg(memory_used_mb ORDER BY observed_at DESC, sequence DESC))[1] AS last_mb
FROM device JOIN stored_sample USING (device_no)
JOIN unnest($1::text[], $2::text[]) AS granted (node_id, device_uuid) USING (node_id, device_uuid)
WHERE observed_at >= $3 AND observed_at < $4 AND {spans_of("$3", "$4")}
  AND memory_used_mb IS NOT NULL
GROUP BY device_no ORDER BY node_id, device_index
"""


def is_out_of_memory(failure: Failure | None) -> bool:
    """Return True if its kind or the engine's last output shows a lack of memory."""
    if failure is None:
        return False
    text = "\n".join((failure.message, *failure.log_tail))
    return failure.kind in OUT_OF_MEMORY or any(
        finding.failure.kind in OUT_OF_MEMORY for finding in findings(text)
    )


def until_of(event: AttemptFinished) -> datetime:
    """Return when the attempt began to be taken down; what its GPUs had afterwards does not
    count.
    """
    ends = [timing.started_at for timing in event.phases if timing.phase in ENDING]
    return min(ends, default=event.finished_at)


async def trend_of(connection: Connection, event: AttemptFinished) -> tuple[GpuMemoryTrend, ...]:
    """Return the trend by node and device; empty where no sample is stored, and for every other
    failure.
    """
    if not is_out_of_memory(event.failure):
        return ()
    devices, _ = await devices_of(connection, event)
    until = until_of(event)
    rows = await connection.fetch(
        SELECT_TREND,
        [device.node_id for device in devices],
        [device.uuid for device in devices],
        max(event.started_at, until - SHOWN),
        until,
    )
    return tuple(
        GpuMemoryTrend(
            **dict(row),
            is_growing=row["peak_mb"] - row["start_mb"]
            > GROWTH_SHARE * (row["total_mb"] or row["peak_mb"]),
        )
        for row in rows
    )
