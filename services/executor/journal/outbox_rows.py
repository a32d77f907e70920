"""Events and releases that wait to be sent; every function runs inside a transaction."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from schemas.executor.attempts import AttemptFinished, AttemptPhaseChanged, AttemptStarted
from schemas.scheduler.reservations import ReleaseReservation
from services.executor.journal import store

AttemptFact = AttemptStarted | AttemptPhaseChanged | AttemptFinished

_encoder: Final = msgspec.msgpack.Encoder()
_events: Final = msgspec.msgpack.Decoder(AttemptFact)
_releases: Final = msgspec.msgpack.Decoder(ReleaseReservation)


def stage_event(connection: sqlite3.Connection, event: AttemptFact) -> None:
    connection.execute(
        "INSERT INTO event (body, staged_at) VALUES (?, ?)", (_encoder.encode(event), time.time())
    )


def unsent_events(connection: sqlite3.Connection, limit: int) -> list[tuple[int, AttemptFact]]:
    """The oldest events that the bus has not acknowledged, in their order."""
    rows = connection.execute(
        "SELECT event_no, body FROM event WHERE sent_at IS NULL ORDER BY event_no LIMIT ?", (limit,)
    )
    return [(row["event_no"], _events.decode(row["body"])) for row in rows]


def oldest_unsent_at(connection: sqlite3.Connection) -> float | None:
    """Return when the oldest unsent event was written, by time.time(); None if all are stored."""
    row = connection.execute("SELECT min(staged_at) AS at FROM event WHERE sent_at IS NULL")
    oldest_at: float | None = row.fetchone()["at"]
    return oldest_at


def mark_sent(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    connection.executemany(
        "UPDATE event SET sent_at = ? WHERE event_no = ?",
        [(time.time(), number) for number in numbers],
    )


def publish_end_again(connection: sqlite3.Connection, attempt_id: UUID) -> None:
    """Have the end of an attempt published once more; nothing if it has not ended."""
    record = store.attempt(connection, attempt_id)
    if record is None or record.outcome is None:
        return
    connection.execute(
        "UPDATE event SET sent_at = NULL WHERE event_no ="
        " (SELECT max(event_no) FROM event WHERE instr(body, ?) > 0)",
        (str(attempt_id).encode(),),
    )


def is_new_stream(connection: sqlite3.Connection, created_at: str) -> bool:
    """Return whether the stream is another than last time; stored events then count as unsent."""
    row = connection.execute("SELECT stream_created_at FROM node").fetchone()
    if row["stream_created_at"] == created_at:
        return False
    connection.execute("UPDATE event SET sent_at = NULL")
    connection.execute("UPDATE node SET stream_created_at = ?", (created_at,))
    return True


def stage_release(connection: sqlite3.Connection, release: ReleaseReservation) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO unsent_release (reservation_id, body) VALUES (?, ?)",
        (release.reservation_id.bytes, _encoder.encode(release)),
    )


def unsent_releases(connection: sqlite3.Connection) -> list[ReleaseReservation]:
    rows = connection.execute("SELECT body FROM unsent_release")
    return [_releases.decode(row["body"]) for row in rows]


def forget_release(connection: sqlite3.Connection, reservation_id: UUID) -> None:
    connection.execute(
        "DELETE FROM unsent_release WHERE reservation_id = ?", (reservation_id.bytes,)
    )
