"""What is written to the journal and read from it; every function runs inside a transaction."""

import hashlib
import sqlite3
import time
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from schemas.cluster.kubernetes import EnginePod
from schemas.errors import Reply
from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhase,
    CancelExperiment,
    Failure,
    FenceReservation,
    PhaseTiming,
    Runtime,
    StartExperiment,
)
from schemas.executor.ranks import StartRank
from schemas.gpus.device_grant import DeviceGrant
from services.executor.domain.admission import StartHistory, share_cells
from services.executor.host.processes import ProcessMark
from shared.messaging.codec import decode_reply

NodeCommand = StartExperiment | CancelExperiment | FenceReservation | StartRank

KEEP_EVENTS_SECONDS: Final = 24 * 3600.0
KEEP_MEMORY_SECONDS: Final = 30 * 24 * 3600.0

_encoder: Final = msgspec.msgpack.Encoder()
_canonical: Final = msgspec.msgpack.Encoder(order="deterministic")
_starts: Final = msgspec.msgpack.Decoder(StartExperiment)
_marks: Final = msgspec.msgpack.Decoder(ProcessMark)
_failures: Final = msgspec.msgpack.Decoder(Failure)
# A single one is what an executor of release 0.1.0 wrote.
_pods: Final = msgspec.msgpack.Decoder(EnginePod | tuple[EnginePod, ...])
_timings: Final = msgspec.msgpack.Decoder(tuple[PhaseTiming, ...])


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    command: StartExperiment
    accepted_at: datetime
    started_at: datetime | None
    phase: AttemptPhase
    phase_started_at: datetime
    timings: tuple[PhaseTiming, ...]
    revision: int
    process: ProcessMark | None
    cancel_reason: str | None
    outcome: AttemptOutcome | None
    failure: Failure | None
    pods: tuple[EnginePod, ...]
    image_digest: str | None

    def timings_until(self, now: datetime) -> tuple[PhaseTiming, ...]:
        """Return all phases, the current one ended at `now`."""
        return (*self.timings, _timing(self.phase, self.phase_started_at, now))


def body_hash(command: NodeCommand) -> bytes:
    """Return a hash, equal for equal bodies, whatever the order of their free-form parts."""
    return hashlib.sha256(_canonical.encode(command)).digest()


def find_reply(connection: sqlite3.Connection, command_id: UUID) -> tuple[bytes, Reply] | None:
    """The body hash and the reply of a command answered before."""
    row = connection.execute(
        "SELECT body_hash, reply FROM command WHERE command_id = ?", (command_id.bytes,)
    ).fetchone()
    return (row["body_hash"], decode_reply(row["reply"])) if row is not None else None


def store_reply(connection: sqlite3.Connection, command: NodeCommand, reply: Reply) -> None:
    connection.execute(
        "INSERT INTO command (command_id, body_hash, reply, answered_at) VALUES (?, ?, ?, ?)",
        (command.command_id.bytes, body_hash(command), _encoder.encode(reply), time.time()),
    )


def recall_start(connection: sqlite3.Connection, command: StartExperiment) -> StartHistory:
    """Return what the journal has that decides about this start."""
    devices = _own_devices(command)
    unfinished = find_unfinished_attempts(connection)
    other_ids = [
        record.command.attempt_id
        for record in unfinished
        if record.command.experiment_id == command.experiment_id
        or share_cells(devices, _own_devices(record.command))
    ]
    earlier = connection.execute(
        "SELECT attempt_id FROM attempt WHERE reservation_id = ?", (command.reservation_id.bytes,)
    ).fetchone()
    kept = connection.execute("SELECT reservation_id, attempt_id FROM kept_engine").fetchall()
    kept_pair = (
        command.reservation_id.bytes,
        command.kept_from.bytes if command.kept_from else None,
    )
    is_kept = kept_pair in {(row["reservation_id"], row["attempt_id"]) for row in kept}
    epochs = {device.uuid: _largest_on(connection, device) for device in devices}
    return StartHistory(
        is_fenced=_holds(
            connection, "fenced_reservation", "reservation_id", command.reservation_id
        ),
        is_cancelled=_holds(connection, "cancelled_attempt", "attempt_id", command.attempt_id),
        device_epochs={uuid: epoch for uuid, epoch in epochs.items() if epoch},
        attempt_of_reservation=(
            UUID(bytes=earlier["attempt_id"]) if earlier is not None and not is_kept else None
        ),
        blocking_attempts=tuple(other_ids),
        unfinished=len(unfinished) + len(kept) - is_kept,
        is_kept=is_kept,
    )


def _largest_on(connection: sqlite3.Connection, device: DeviceGrant) -> int:
    """The largest epoch of those that had a cell of what is granted; 0 if none had."""
    query = (
        "SELECT coalesce(max(epoch), 0) FROM cell_epoch"
        " WHERE device_uuid = ? AND first_cell < ? AND end_cell > ?"
    )
    cursors = (connection.execute(query, (device.uuid, c.end, c.first)) for c in device.cells)
    return max(int(rows.fetchone()[0]) for rows in cursors)


def _own_devices(command: StartExperiment) -> tuple[DeviceGrant, ...]:
    """Return the devices of this node; those of other ranks are guarded by their own executors."""
    return tuple(device for device in command.devices if device.node_id == command.executor_id)


def _holds(connection: sqlite3.Connection, table: str, column: str, value: UUID) -> bool:
    query = f"SELECT 1 FROM {table} WHERE {column} = ?"  # both are ours
    return connection.execute(query, (value.bytes,)).fetchone() is not None


def insert_attempt(connection: sqlite3.Connection, command: StartExperiment, now: datetime) -> None:
    """Record the attempt, and its epoch on its cells of devices."""
    connection.execute(
        "INSERT INTO attempt (attempt_id, experiment_id, reservation_id, command, accepted_at,"
        " phase, phase_started_at, timings) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            command.attempt_id.bytes,
            command.experiment_id.bytes,
            command.reservation_id.bytes,
            _encoder.encode(command),
            now.isoformat(),
            AttemptPhase.STARTING.value,
            now.isoformat(),
            _encoder.encode(()),
        ),
    )
    rows = [
        (device.uuid, cells.first, cells.end, command.epoch)
        for device in _own_devices(command)
        for cells in device.cells
    ]
    # The new row stands for what lies within, so that there are never many.
    connection.executemany(
        "DELETE FROM cell_epoch"
        " WHERE device_uuid = ? AND first_cell >= ? AND end_cell <= ? AND epoch <= ?",
        rows,
    )
    connection.executemany(
        "INSERT INTO cell_epoch (device_uuid, first_cell, end_cell, epoch) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch)",
        rows,
    )
    see_epoch(connection, command.epoch)


def see_epoch(connection: sqlite3.Connection, epoch: int) -> None:
    connection.execute("UPDATE node SET largest_epoch = max(largest_epoch, ?)", (epoch,))


def attempt(connection: sqlite3.Connection, attempt_id: UUID) -> AttemptRecord | None:
    row = connection.execute(
        "SELECT * FROM attempt WHERE attempt_id = ?", (attempt_id.bytes,)
    ).fetchone()
    return _record(row) if row is not None else None


def find_unfinished_attempts(connection: sqlite3.Connection) -> list[AttemptRecord]:
    """Accepted and not finished, oldest first."""
    rows = connection.execute("SELECT * FROM attempt WHERE outcome IS NULL ORDER BY accepted_at")
    return [_record(row) for row in rows]


def _record(row: sqlite3.Row) -> AttemptRecord:
    return AttemptRecord(
        command=_starts.decode(row["command"]),
        accepted_at=datetime.fromisoformat(row["accepted_at"]),
        started_at=datetime.fromisoformat(row["started_at"]) if row["started_at"] else None,
        phase=AttemptPhase(row["phase"]),
        phase_started_at=datetime.fromisoformat(row["phase_started_at"]),
        timings=_timings.decode(row["timings"]),
        revision=row["revision"],
        process=_marks.decode(row["process"]) if row["process"] is not None else None,
        cancel_reason=row["cancel_reason"],
        outcome=AttemptOutcome(row["outcome"]) if row["outcome"] else None,
        failure=_failures.decode(row["failure"]) if row["failure"] is not None else None,
        pods=_decode_pods(row["pod"]),
        image_digest=row["image_digest"],
    )


def _timing(phase: AttemptPhase, started_at: datetime, ended_at: datetime) -> PhaseTiming:
    seconds = (ended_at - started_at).total_seconds()
    return PhaseTiming(phase=phase, started_at=started_at, duration_seconds=max(0.0, seconds))


def mark_started(connection: sqlite3.Connection, attempt_id: UUID, now: datetime) -> None:
    connection.execute(
        "UPDATE attempt SET started_at = ? WHERE attempt_id = ?",
        (now.isoformat(), attempt_id.bytes),
    )


def record_process(connection: sqlite3.Connection, attempt_id: UUID, process: ProcessMark) -> None:
    connection.execute(
        "UPDATE attempt SET process = ? WHERE attempt_id = ?",
        (_encoder.encode(process), attempt_id.bytes),
    )


def record_image(connection: sqlite3.Connection, attempt_id: UUID, digest: str) -> None:
    connection.execute(
        "UPDATE attempt SET image_digest = ? WHERE attempt_id = ?", (digest, attempt_id.bytes)
    )


def record_pod(connection: sqlite3.Connection, attempt_id: UUID, pod: EnginePod) -> None:
    row = connection.execute(
        "SELECT pod FROM attempt WHERE attempt_id = ?", (attempt_id.bytes,)
    ).fetchone()
    by_rank = {other.rank: other for other in _decode_pods(row["pod"] if row else None)}
    by_rank[pod.rank] = pod
    pods = [by_rank[rank] for rank in sorted(by_rank)]
    connection.execute(
        "UPDATE attempt SET pod = ? WHERE attempt_id = ?", (_encoder.encode(pods), attempt_id.bytes)
    )


def _decode_pods(stored: bytes | None) -> tuple[EnginePod, ...]:
    pods = _pods.decode(stored) if stored is not None else ()
    return (pods,) if isinstance(pods, EnginePod) else pods


def was_used(connection: sqlite3.Connection, runtime: Runtime, reservation_id: UUID | None) -> bool:
    """Return whether an attempt ran in this runtime here, or under that reservation."""
    rows = connection.execute(
        "SELECT command FROM attempt WHERE ?1 IS NULL OR reservation_id = ?1",
        (reservation_id.bytes if reservation_id is not None else None,),
    )
    return any(_starts.decode(row["command"]).engine.runtime is runtime for row in rows)


def process_marks(connection: sqlite3.Connection, reservation_id: UUID) -> tuple[ProcessMark, ...]:
    """The processes that attempts under a reservation were started as."""
    rows = connection.execute(
        "SELECT process FROM attempt WHERE reservation_id = ? AND process IS NOT NULL",
        (reservation_id.bytes,),
    )
    return tuple(_marks.decode(row["process"]) for row in rows)


def change_phase(
    connection: sqlite3.Connection, record: AttemptRecord, phase: AttemptPhase, now: datetime
) -> None:
    connection.execute(
        "UPDATE attempt SET phase = ?, phase_started_at = ?, timings = ? WHERE attempt_id = ?",
        (
            phase.value,
            now.isoformat(),
            _encoder.encode(record.timings_until(now)),
            record.command.attempt_id.bytes,
        ),
    )


def request_cancel(connection: sqlite3.Connection, attempt_id: UUID, reason: str) -> None:
    """Record the cancellation of an attempt, known or still to come."""
    connection.execute(
        "UPDATE attempt SET cancel_reason = ? WHERE attempt_id = ? AND outcome IS NULL",
        (reason, attempt_id.bytes),
    )
    connection.execute(
        "INSERT OR IGNORE INTO cancelled_attempt (attempt_id, cancelled_at) VALUES (?, ?)",
        (attempt_id.bytes, time.time()),
    )


def fence(connection: sqlite3.Connection, reservation_id: UUID) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO fenced_reservation (reservation_id, fenced_at) VALUES (?, ?)",
        (reservation_id.bytes, time.time()),
    )


def is_fenced(connection: sqlite3.Connection, reservation_id: UUID) -> bool:
    return _holds(connection, "fenced_reservation", "reservation_id", reservation_id)


def next_revision(connection: sqlite3.Connection, attempt_id: UUID) -> int:
    row = connection.execute(
        "UPDATE attempt SET revision = revision + 1 WHERE attempt_id = ? RETURNING revision",
        (attempt_id.bytes,),
    ).fetchone()
    return int(row["revision"])


def mark_finished(
    connection: sqlite3.Connection,
    attempt_id: UUID,
    outcome: AttemptOutcome,
    now: datetime,
    failure: Failure | None = None,
) -> None:
    connection.execute(
        "UPDATE attempt SET outcome = ?, failure = ?, finished_at = ? WHERE attempt_id = ?",
        (
            outcome.value,
            _encoder.encode(failure) if failure is not None else None,
            now.isoformat(),
            attempt_id.bytes,
        ),
    )


def count_report(connection: sqlite3.Connection) -> tuple[int, int]:
    """The revision of the next report about this executor, and the largest epoch."""
    row = connection.execute(
        "UPDATE node SET reports = reports + 1 RETURNING reports, largest_epoch"
    ).fetchone()
    return int(row["reports"]), int(row["largest_epoch"])


def prune(connection: sqlite3.Connection) -> None:
    """Delete what no message can refer to any more."""
    now = time.time()
    connection.execute(
        "DELETE FROM event WHERE sent_at IS NOT NULL AND staged_at < ?",
        (now - KEEP_EVENTS_SECONDS,),
    )
    memory_cutoff = (now - KEEP_MEMORY_SECONDS,)
    connection.execute("DELETE FROM command WHERE answered_at < ?", memory_cutoff)
    connection.execute("DELETE FROM fenced_reservation WHERE fenced_at < ?", memory_cutoff)
    connection.execute("DELETE FROM cancelled_attempt WHERE cancelled_at < ?", memory_cutoff)
    connection.execute(
        "DELETE FROM attempt WHERE julianday(finished_at) < julianday('now', '-30 days')"
    )
