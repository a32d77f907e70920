"""Engines that ended attempts left up: each row owes the release of its reservation.

Every function runs inside a transaction.
"""

import sqlite3
from uuid import UUID

from schemas.base import node_speaker
from schemas.executor.attempts import StartExperiment
from schemas.scheduler.reservations import ReleaseReservation
from services.executor.journal import outbox_rows, store
from services.executor.journal.store import AttemptRecord
from shared.ids import new_id


def insert(connection: sqlite3.Connection, command: StartExperiment) -> None:
    """Record that the engine of this attempt stays up, in place of its release."""
    connection.execute(
        "INSERT INTO kept_engine (reservation_id, attempt_id) VALUES (?, ?)",
        (command.reservation_id.bytes, command.attempt_id.bytes),
    )


def hand_over(connection: sqlite3.Connection, command: StartExperiment) -> None:
    """Leave the release to a journaled attempt, with what is known of the engine that it has."""
    if command.kept_from is None:
        return
    connection.execute(
        "DELETE FROM kept_engine WHERE reservation_id = ?", (command.reservation_id.bytes,)
    )
    connection.execute(
        "UPDATE attempt SET (process, image_digest) ="
        " (SELECT process, image_digest FROM attempt WHERE attempt_id = ?) WHERE attempt_id = ?",
        (command.kept_from.bytes, command.attempt_id.bytes),
    )


def end(connection: sqlite3.Connection, reservation_id: UUID, reason: str) -> None:
    """Release the reservation: nothing of the engine runs any more."""
    record = _find(connection, reservation_id)
    if record is None:
        return
    connection.execute("DELETE FROM kept_engine WHERE reservation_id = ?", (reservation_id.bytes,))
    command = record.command
    outbox_rows.stage_release(
        connection,
        ReleaseReservation(
            command_id=new_id(),
            reservation_id=reservation_id,
            epoch=command.epoch,
            stopped=True,
            reason=f"the engine of attempt {command.attempt_id} was kept up: {reason}",
            speaker=node_speaker(command.executor_id),
        ),
    )


def find_all(connection: sqlite3.Connection) -> list[AttemptRecord]:
    """Return the attempts whose engines may be up."""
    rows = connection.execute("SELECT attempt_id FROM kept_engine")
    records = (store.attempt(connection, UUID(bytes=row["attempt_id"])) for row in rows.fetchall())
    return [record for record in records if record is not None]


def _find(connection: sqlite3.Connection, reservation_id: UUID) -> AttemptRecord | None:
    row = connection.execute(
        "SELECT attempt_id FROM kept_engine WHERE reservation_id = ?", (reservation_id.bytes,)
    ).fetchone()
    return store.attempt(connection, UUID(bytes=row["attempt_id"])) if row is not None else None
