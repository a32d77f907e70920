"""Finished attempts and the state of their summaries, in Postgres."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.executor.attempts import AttemptFinished, AttemptOutcome, Window
from schemas.gpus.device_grant import DeviceGrant
from schemas.results.measurements import GpuMonitoring
from schemas.task.benchmark import RequestColumns
from schemas.telemetry.readings import HealthChanged
from services.results.domain.details import Fault
from services.results.domain.packed_spans import spans_of
from services.results.domain.reading import Reading
from services.results.samples.copied_rows import COLUMNS
from shared.benchmarks.levels.request_columns import without_requests
from shared.errors import RefusedError
from shared.messaging.codec import encode
from shared.postgres.database import Connection, Row, from_json, to_json

# How far around its window an attempt's samples are copied: neighbours say what happens at its
# edges, and the first one after it shows that it is complete.
MARGIN: Final = timedelta(seconds=30)

INSERT_ATTEMPT: Final = """
INSERT INTO attempt (attempt_id, experiment_id, task_id, namespace, attempt_number, outcome, gpus,
                     started_at, finished_at, received_at, event)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (attempt_id) DO NOTHING RETURNING true
"""

SELECT_ATTEMPT: Final = "SELECT event FROM attempt WHERE attempt_id = $1"

INSERT_REQUESTS: Final = "INSERT INTO level_requests VALUES ($1, $2, $3)"
SELECT_REQUESTS: Final = "SELECT columns FROM level_requests WHERE attempt_id = $1 AND level = $2"

INSERT_SUMMARY: Final = """
INSERT INTO summary (attempt_id, experiment_id, node_ids, window_started_at, window_finished_at,
                     samples_from, samples_until, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (attempt_id) DO NOTHING
"""

# Also those that are pending: one being computed right now has to be waited for here, or it would
# end without these samples and never see them. In one order everywhere, as batches come beside
# each other.
REOPEN_SUMMARIES: Final = """
WITH late AS MATERIALIZED (
    SELECT attempt_id FROM summary
    WHERE EXISTS (
        SELECT FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[])
            AS arrived (node_id, first_at, last_at)
        WHERE samples_until > first_at AND samples_from < last_at AND node_id = ANY (node_ids))
    ORDER BY attempt_id FOR UPDATE)
UPDATE summary SET pending = true FROM late WHERE summary.attempt_id = late.attempt_id
"""

LOCK_NEXT_PENDING: Final = """
SELECT event, node_ids, samples_from, window_finished_at, due_at <= $2 AS due, version,
       gpu_monitoring, whole_run
FROM summary JOIN attempt USING (attempt_id)
WHERE pending AND attempt_id != ALL ($1) ORDER BY due_at LIMIT 1
FOR UPDATE OF summary SKIP LOCKED
"""

# The first sample of each node from the window's end on, found by one step into the index of each
# of its devices.
SELECT_FOLLOWING: Final = f"""
SELECT node_id, min(following.observed_at) AS at
FROM device JOIN LATERAL (
    SELECT observed_at FROM stored_sample
    WHERE stored_sample.device_no = device.device_no AND observed_at >= $2 AND observed_at < $3
      AND {spans_of("$2", "$3")}
    ORDER BY observed_at LIMIT 1) AS following ON true
WHERE node_id = ANY ($1) GROUP BY node_id
"""

COPY_SAMPLES: Final = f"""
INSERT INTO experiment_sample (attempt_id, {", ".join(COLUMNS)})
SELECT $1::uuid, {", ".join(f"stored_sample.{name}" for name in COLUMNS)}
FROM stored_sample JOIN device USING (device_no)
JOIN unnest($2::text[], $3::text[]) AS granted (node_id, device_uuid) USING (node_id, device_uuid)
WHERE observed_at >= $4 AND observed_at <= $5 AND {spans_of("$4", "$5")} ON CONFLICT DO NOTHING
"""

SELECT_SAMPLES: Final = f"""
SELECT node_id, device_uuid, simulated, extract(epoch FROM observed_at)::float8 AS at,
       {", ".join(f"experiment_sample.{name}" for name in COLUMNS)}
FROM experiment_sample JOIN device USING (device_no)
WHERE attempt_id = $1 ORDER BY observed_at, sequence
"""

INSERT_FAULT: Final = """
INSERT INTO device_fault (event_id, node_id, device_uuid, occurred_at, xid)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""

SELECT_FAULTS: Final = """
SELECT node_id, device_uuid, extract(epoch FROM occurred_at)::float8 AS at, xid FROM device_fault
WHERE node_id = ANY ($1) AND occurred_at >= $2 AND occurred_at <= $3
"""

SELECT_NEXT_VERSION: Final = """
SELECT coalesce(max(version), 0) + 1 FROM summary WHERE experiment_id = $1
"""

UPDATE_SUMMARY: Final = """
UPDATE summary SET pending = false, version = $2, gpu_monitoring = $3, energy_wh = $4,
    samples_until = $5, summarized_at = $6, whole_run = $7
WHERE attempt_id = $1
"""

SELECT_SUMMARY: Final = """
SELECT event, version, gpu_monitoring, whole_run FROM summary JOIN attempt USING (attempt_id)
WHERE summary.experiment_id = $1 AND version > 0 ORDER BY version DESC LIMIT 1
"""

SELECT_TASK_SUMMARIES: Final = """
SELECT DISTINCT ON (attempt.experiment_id) event, version, gpu_monitoring, whole_run
FROM summary JOIN attempt USING (attempt_id)
WHERE task_id = $1 AND version > 0 AND ($2::uuid IS NULL OR attempt.experiment_id > $2)
ORDER BY attempt.experiment_id, version DESC LIMIT $3
"""

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(RequestColumns).decode
_decode_event = msgspec.msgpack.Decoder(AttemptFinished).decode


class Pending(Struct, frozen=True, kw_only=True):
    """An attempt whose summary has to be computed, locked by the transaction that found it."""

    event: AttemptFinished
    node_ids: tuple[str, ...]
    samples_from: datetime
    window_finished_at: datetime
    due: bool
    version: int
    gpu_monitoring: GpuMonitoring | None
    whole_run: GpuMonitoring | None


class Summary(Struct, frozen=True, kw_only=True):
    """A stored summary with the attempt that it is of."""

    event: AttemptFinished
    version: int
    gpu_monitoring: GpuMonitoring
    whole_run: GpuMonitoring | None


def windows_of(event: AttemptFinished) -> tuple[Window, ...]:
    """The measured runs: as reported, else those of the benchmark's levels."""
    if event.windows or event.benchmark is None:
        return event.windows
    return tuple(
        Window(started_at=level.started_at, finished_at=level.finished_at)
        for level in event.benchmark.levels
    )


async def insert_attempt(connection: Connection, event: AttemptFinished, now: datetime) -> bool:
    """False if it is there already."""
    stored: bool | None = await connection.fetchval(
        INSERT_ATTEMPT,
        event.attempt_id,
        event.experiment_id,
        event.task_id,
        event.namespace,
        event.attempt_number,
        event.outcome.value,
        sum(pod.gpus for pod in event.pods) or len(event.devices),
        event.started_at,
        event.finished_at,
        now,
        encode(_without_requests(event)),
    )
    if stored is True and event.benchmark is not None:
        columns = [level.requests for level in event.benchmark.levels]
        rows = [
            (event.attempt_id, n, _pack(level_columns))
            for n, level_columns in enumerate(columns)
            if level_columns
        ]
        await connection.executemany(INSERT_REQUESTS, rows)
    return stored is True


def _without_requests(event: AttemptFinished) -> AttemptFinished:
    if event.benchmark is None:
        return event
    return msgspec.structs.replace(event, benchmark=without_requests(event.benchmark))


async def attempt_of(connection: Connection, attempt_id: UUID) -> AttemptFinished | None:
    """Read a finished attempt; None if there is none, or it was deleted."""
    event: bytes | None = await connection.fetchval(SELECT_ATTEMPT, attempt_id)
    return _decode_event(event) if event else None


async def requests_of(
    connection: Connection, attempt_id: UUID, level: int
) -> RequestColumns | None:
    """Read the requests of one of its levels, counted from 0."""
    packed: bytes | None = await connection.fetchval(SELECT_REQUESTS, attempt_id, level)
    return _unpack(packed) if packed is not None else None


async def expect_summary(connection: Connection, event: AttemptFinished, due_at: datetime) -> None:
    """Have a succeeded attempt summarized when its samples are there, or else at `due_at`."""
    if event.outcome is not AttemptOutcome.SUCCEEDED:
        return
    windows = windows_of(event)
    started_at = min((w.started_at for w in windows), default=event.finished_at)
    finished_at = max((w.finished_at for w in windows), default=event.finished_at)
    await connection.execute(
        INSERT_SUMMARY,
        event.attempt_id,
        event.experiment_id,
        event.node_ids,
        started_at,
        finished_at,
        min(started_at, event.started_at) - MARGIN,
        max(finished_at, event.finished_at) + MARGIN,
        due_at,
    )


async def reopen(connection: Connection, spans: dict[str, tuple[datetime, datetime]]) -> None:
    """Have summaries computed again for which samples came late, given by node and times."""
    await connection.execute(
        REOPEN_SUMMARIES,
        list(spans),
        [first for first, _ in spans.values()],
        [last for _, last in spans.values()],
    )


async def next_pending(
    connection: Connection, skip: Iterable[UUID], now: datetime
) -> Pending | None:
    """An attempt to summarize that no other instance has locked, except those in `skip`."""
    row = await connection.fetchrow(LOCK_NEXT_PENDING, list(skip), now)
    if row is None:
        return None
    fields = {
        **row,
        "event": _decode_event(row["event"]),
        "gpu_monitoring": _monitoring(row["gpu_monitoring"]),
        "whole_run": _monitoring(row["whole_run"]),
    }
    return msgspec.convert(fields, Pending)


async def find_passing(connection: Connection, pending: Pending) -> datetime | None:
    """Return when every node had a sample at or after the window's end; None while one has not."""
    rows = await connection.fetch(
        SELECT_FOLLOWING,
        list(pending.node_ids),
        pending.window_finished_at,
        pending.window_finished_at + MARGIN,
    )
    if len(rows) < len(pending.node_ids):
        return None
    return max((row["at"] for row in rows), default=pending.window_finished_at)


async def copy_samples(
    connection: Connection, pending: Pending, devices: Sequence[DeviceGrant], until: datetime
) -> None:
    """Copy the attempt's own samples to where they stay as long as the experiment."""
    await connection.execute(
        COPY_SAMPLES,
        pending.event.attempt_id,
        [device.node_id for device in devices],
        [device.uuid for device in devices],
        pending.samples_from,
        until,
    )


async def readings_of(
    connection: Connection, attempt_id: UUID
) -> tuple[dict[tuple[str, str], list[Reading]], bool]:
    """An attempt's own readings by (node, device), and whether any of them is simulated."""
    rows = await connection.fetch(SELECT_SAMPLES, attempt_id)
    readings: dict[tuple[str, str], list[Reading]] = {}
    for row in rows:
        readings.setdefault((row["node_id"], row["device_uuid"]), []).append(
            msgspec.convert(row, Reading)
        )
    return readings, any(row["simulated"] for row in rows)


async def insert_fault(connection: Connection, event: HealthChanged) -> None:
    await connection.execute(
        INSERT_FAULT,
        event.message_id,
        event.node_id,
        event.device_uuid,
        event.occurred_at,
        event.xid,
    )


async def faults_of(connection: Connection, pending: Pending, until: datetime) -> list[Fault]:
    rows = await connection.fetch(
        SELECT_FAULTS, list(pending.node_ids), pending.samples_from, until
    )
    return [Fault(**dict(row)) for row in rows]


async def next_version(connection: Connection, experiment_id: UUID) -> int:
    """The number of an experiment's next summary."""
    version: int = await connection.fetchval(SELECT_NEXT_VERSION, experiment_id)
    return version


async def save_summary(
    connection: Connection,
    pending: Pending,
    monitoring: GpuMonitoring,
    whole_run: GpuMonitoring,
    *,
    version: int,
    samples_until: datetime,
    now: datetime,
) -> None:
    """Store a summary; samples older than `samples_until` that come later open it again."""
    await connection.execute(
        UPDATE_SUMMARY,
        pending.event.attempt_id,
        version,
        to_json(monitoring),
        monitoring.energy_wh,
        samples_until,
        now,
        to_json(whole_run),
    )


async def summary_of(connection: Connection, experiment_id: UUID) -> Summary | None:
    """The newest summary of an experiment."""
    row = await connection.fetchrow(SELECT_SUMMARY, experiment_id)
    return _summary(row) if row is not None else None


async def get_summary(connection: Connection, experiment_id: UUID) -> Summary:
    """Return the summary as `summary_of` does. Raises RefusedError if there is none."""
    summary = await summary_of(connection, experiment_id)
    if summary is None:
        message = f"experiment {experiment_id} has no measurements"
        raise RefusedError(ErrorCode.NOT_FOUND, message, path="$.experiment_id")
    return summary


async def summaries_of_task(
    connection: Connection, task_id: UUID, after_experiment_id: UUID | None, limit: int
) -> list[Summary]:
    """The newest summary of each experiment of a task, by experiment."""
    rows = await connection.fetch(SELECT_TASK_SUMMARIES, task_id, after_experiment_id, limit)
    return [_summary(row) for row in rows]


def _summary(row: Row) -> Summary:
    return Summary(
        event=_decode_event(row["event"]),
        version=row["version"],
        gpu_monitoring=from_json(row["gpu_monitoring"], GpuMonitoring),
        whole_run=_monitoring(row["whole_run"]),
    )


def _monitoring(text: str | None) -> GpuMonitoring | None:
    return from_json(text, GpuMonitoring) if text else None
