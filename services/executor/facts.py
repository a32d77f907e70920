"""The steps of an attempt: each changes the journal and stages its event in one transaction.

Of several ranks only the coordinator's has events, and a release: there is one attempt. The others
are journaled where they run.
"""

import sqlite3
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.executor import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhase,
    AttemptPhaseChanged,
    AttemptStarted,
    Failure,
)
from schemas.scheduler import ReleaseReservation
from services.executor import store
from services.executor.domain.verdict import Verdict, cancelled
from services.executor.engines.table import ENGINES
from services.executor.store import AttemptRecord
from shared.failures import RULES
from shared.ids import new_id


def record_start(connection: sqlite3.Connection, attempt_id: UUID, now: datetime) -> None:
    """The lease is confirmed and the engine is about to start."""
    record = _unfinished(connection, attempt_id)
    if record is None or record.started_at is not None:
        return
    store.mark_started(connection, attempt_id, now)
    if record.command.gang is None:
        store.stage_event(
            connection,
            AttemptStarted(
                **_about(record, store.next_revision(connection, attempt_id), now),
                devices=record.command.devices,
            ),
        )


def record_phase(
    connection: sqlite3.Connection, attempt_id: UUID, phase: AttemptPhase, now: datetime
) -> None:
    """The attempt enters a phase; nothing if it is there already."""
    record = _unfinished(connection, attempt_id)
    if record is None or record.phase is phase:
        return
    store.change_phase(connection, record, phase, now)
    if record.command.gang is None:
        store.stage_event(
            connection,
            AttemptPhaseChanged(
                **_about(record, store.next_revision(connection, attempt_id), now),
                phase=phase,
            ),
        )


def record_finish(
    connection: sqlite3.Connection, attempt_id: UUID, verdict: Verdict, now: datetime
) -> AttemptOutcome | None:
    """The one outcome, with the release of the devices; None if there is one already.

    Only after the teardown is confirmed. An attempt whose cancellation was accepted is cancelled,
    whatever it reached meanwhile.
    """
    record = _unfinished(connection, attempt_id)
    if record is None:
        return None
    if record.cancel_reason is not None:
        verdict = cancelled(record.cancel_reason)
    verdict = replace(verdict, failure=_with_hint(verdict.failure))
    store.mark_finished(connection, attempt_id, verdict.outcome, now, verdict.failure)
    command = record.command
    if command.gang is not None:
        return verdict.outcome
    revision = store.next_revision(connection, attempt_id)
    store.stage_event(connection, _finished_event(record, verdict, revision, now))
    store.stage_release(
        connection,
        ReleaseReservation(
            command_id=new_id(),
            reservation_id=command.reservation_id,
            epoch=command.epoch,
            stopped=True,
            reason=f"attempt {attempt_id} {verdict.outcome.value}",
        ),
    )
    return verdict.outcome


def _finished_event(
    record: AttemptRecord, verdict: Verdict, revision: int, now: datetime
) -> AttemptFinished:
    command = record.command
    engine = ENGINES.get(command.engine.engine.lower())
    benchmark = verdict.benchmark
    return AttemptFinished(
        **_about(record, revision, now),
        outcome=verdict.outcome,
        namespace=command.namespace,
        devices=command.devices,
        engine=command.engine,
        started_at=record.started_at or record.accepted_at,
        finished_at=now,
        failure=verdict.failure,
        benchmark=benchmark,
        windows=verdict.windows,
        phases=record.timings_until(now),
        engine_simulated=(engine is not None and engine.simulated)
        or (benchmark is not None and benchmark.simulated),
    )


def _with_hint(failure: Failure | None) -> Failure | None:
    if failure is None or failure.hint:
        return failure
    return replace(failure, hint=RULES[failure.kind].hint)


def _about(record: AttemptRecord, revision: int, now: datetime) -> dict[str, Any]:
    """The fields that every attempt event has."""
    command = record.command
    return {
        "message_id": new_id(),
        "occurred_at": now,
        "revision": revision,
        "experiment_id": command.experiment_id,
        "attempt_id": command.attempt_id,
        "attempt_number": command.attempt_number,
        "task_id": command.task_id,
        "executor_id": command.executor_id,
        "reservation_id": command.reservation_id,
        "epoch": command.epoch,
    }


def _unfinished(connection: sqlite3.Connection, attempt_id: UUID) -> AttemptRecord | None:
    record = store.attempt(connection, attempt_id)
    return record if record is not None and record.outcome is None else None
