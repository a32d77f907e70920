"""The steps of an attempt: each changes the journal and stages its event in one transaction.

Of several ranks only the coordinator's has events, and a release: there is one attempt. The others
are journaled where they run.
"""

import sqlite3
from datetime import datetime
from typing import TypedDict
from uuid import UUID

from schemas.base import node_speaker
from schemas.cluster.kubernetes import EnginePod
from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
)
from schemas.scheduler.reservations import ReleaseReservation
from services.executor.domain.verdict import Verdict, cancellation_verdict
from services.executor.engines.engine_table import ENGINES
from services.executor.journal import kept_rows, outbox_rows, store
from services.executor.journal.store import AttemptRecord
from shared.ids import new_id


class AttemptFields(TypedDict):
    """What every attempt event has."""

    message_id: UUID
    occurred_at: datetime
    revision: int
    experiment_id: UUID
    attempt_id: UUID
    attempt_number: int
    task_id: UUID
    executor_id: str
    reservation_id: UUID
    epoch: int


def record_start(connection: sqlite3.Connection, attempt_id: UUID, now: datetime) -> None:
    """The lease is confirmed and the engine is about to start."""
    record = _find_unfinished(connection, attempt_id)
    if record is None or record.started_at is not None:
        return
    store.mark_started(connection, attempt_id, now)
    if record.command.gang is None:
        outbox_rows.stage_event(
            connection,
            AttemptStarted(
                **_fields(connection, record, now),
                devices=record.command.engine.devices_read(record.command.devices),
            ),
        )


def record_phase(
    connection: sqlite3.Connection, attempt_id: UUID, phase: AttemptPhase, now: datetime
) -> None:
    """The attempt enters a phase; nothing if it is there already."""
    record = _find_unfinished(connection, attempt_id)
    if record is None or record.phase is phase:
        return
    store.change_phase(connection, record, phase, now)
    if record.command.gang is None:
        outbox_rows.stage_event(
            connection,
            AttemptPhaseChanged(
                **_fields(connection, record, now),
                phase=phase,
                pod=_first_pod(record),
                other_pods=_other_pods(record),
            ),
        )


def record_finish(
    connection: sqlite3.Connection, attempt_id: UUID, verdict: Verdict, now: datetime
) -> AttemptOutcome | None:
    """The one outcome, with the release of the devices; None if there is one already.

    Only after the teardown is confirmed. An attempt whose cancellation was accepted is cancelled,
    whatever it reached meanwhile.
    """
    record = _find_unfinished(connection, attempt_id)
    if record is None:
        return None
    if record.cancel_reason is not None:
        verdict = cancellation_verdict(record.cancel_reason)
    store.mark_finished(connection, attempt_id, verdict.outcome, now, verdict.failure)
    command = record.command
    if command.gang is not None:
        return verdict.outcome
    outbox_rows.stage_event(connection, _make_finished_event(connection, record, verdict, now))
    if command.engine.endpoint is not None:  # nothing was reserved
        return verdict.outcome
    outbox_rows.stage_release(
        connection,
        ReleaseReservation(
            command_id=new_id(),
            reservation_id=command.reservation_id,
            epoch=command.epoch,
            stopped=True,
            reason=f"attempt {attempt_id} {verdict.outcome.value}",
            speaker=node_speaker(command.executor_id),
        ),
    )
    return verdict.outcome


def record_kept(
    connection: sqlite3.Connection,
    attempt_id: UUID,
    verdict: Verdict,
    now: datetime,
    kept_until: datetime,
) -> bool:
    """The outcome of an attempt whose engine stays up; False, and nothing, where it may not."""
    record = _find_unfinished(connection, attempt_id)
    if record is None or record.cancel_reason is not None:
        return False
    command = record.command
    if store.is_fenced(connection, command.reservation_id):
        return False
    store.mark_finished(connection, attempt_id, verdict.outcome, now, verdict.failure)
    kept_rows.insert(connection, command)
    event = _make_finished_event(connection, record, verdict, now, kept_until)
    outbox_rows.stage_event(connection, event)
    return True


def _make_finished_event(
    connection: sqlite3.Connection,
    record: AttemptRecord,
    verdict: Verdict,
    now: datetime,
    kept_until: datetime | None = None,
) -> AttemptFinished:
    command = record.command
    engine = ENGINES.get(command.engine.engine.lower())
    benchmark = verdict.benchmark
    return AttemptFinished(
        **_fields(connection, record, now),
        outcome=verdict.outcome,
        namespace=command.namespace,
        devices=command.engine.devices_read(command.devices),
        engine=command.engine,
        started_at=record.started_at or record.accepted_at,
        finished_at=now,
        failure=verdict.failure,
        benchmark=benchmark,
        windows=verdict.windows,
        phases=record.timings_until(now),
        engine_simulated=(engine is not None and engine.simulated)
        or (benchmark is not None and benchmark.simulated),
        executor_stopped=verdict.executor_stopped,
        pod=_first_pod(record),
        other_pods=_other_pods(record),
        image_digest=record.image_digest,
        kept_until=kept_until,
        engine_use=verdict.engine_use,
    )


def _first_pod(record: AttemptRecord) -> EnginePod | None:
    return next((pod for pod in record.pods if pod.rank == 0), None)


def _other_pods(record: AttemptRecord) -> tuple[EnginePod, ...]:
    return tuple(pod for pod in record.pods if pod.rank)


def _fields(connection: sqlite3.Connection, record: AttemptRecord, now: datetime) -> AttemptFields:
    command = record.command
    return {
        "message_id": new_id(),
        "occurred_at": now,
        "revision": store.next_revision(connection, command.attempt_id),
        "experiment_id": command.experiment_id,
        "attempt_id": command.attempt_id,
        "attempt_number": command.attempt_number,
        "task_id": command.task_id,
        "executor_id": command.executor_id,
        "reservation_id": command.reservation_id,
        "epoch": command.epoch,
    }


def _find_unfinished(connection: sqlite3.Connection, attempt_id: UUID) -> AttemptRecord | None:
    record = store.attempt(connection, attempt_id)
    return record if record is not None and record.outcome is None else None
