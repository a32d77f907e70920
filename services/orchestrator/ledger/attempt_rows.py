"""The rows of attempts, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.ledger.record_column import select_all, select_one
from shared.postgres.database import Connection, from_json

# The task is locked first, as everywhere, so that its lock is waited for with no other held. The
# others are locked too: without, they would be read as they were before that wait.
_LOCK_SUBJECT: Final = """
SELECT task.record AS task, experiment.record AS experiment, attempt.record AS attempt
FROM task JOIN attempt USING (task_id) JOIN experiment USING (experiment_id)
WHERE attempt.{key} = $1 ORDER BY attempt.requested_at DESC, attempt.attempt_id DESC LIMIT 1
FOR UPDATE OF task, experiment, attempt
"""
LOCK_BY_ATTEMPT: Final = _LOCK_SUBJECT.format(key="attempt_id")
LOCK_BY_RESERVATION: Final = _LOCK_SUBJECT.format(key="reservation_id")

# What an event is about, locked: whatever concerns one task happens one after the other.
Subject = tuple[Task, Experiment, Attempt]

SELECT_OPEN_ATTEMPT: Final = """
SELECT record FROM attempt WHERE experiment_id = $1 AND closed_at IS NULL
"""

SELECT_ATTEMPTS: Final = """
SELECT experiment_id, record FROM attempt WHERE experiment_id = ANY ($1)
ORDER BY requested_at, attempt_id
"""

DID_TASK_HOLD_GPUS: Final = """
SELECT EXISTS (
    SELECT FROM attempt WHERE task_id = $1 AND attempt_id <> $2 AND executor_id IS NOT NULL
      AND coalesce(closed_at, 'infinity') > $3)
"""

SELECT_LEFT: Final = """
SELECT record FROM attempt WHERE task_id = $1 AND record ->> 'kept_until' IS NOT NULL
"""

SELECT_TO_RENEW: Final = """
SELECT record FROM attempt
WHERE needs_renewal AND NOT EXISTS (
    SELECT FROM executor_offer
    WHERE executor_offer.executor_id = attempt.executor_id AND received_at <= $1)
"""

SELECT_SILENT: Final = """
SELECT attempt.record FROM attempt JOIN experiment USING (experiment_id)
WHERE updated_at <= now() - $1::interval
  AND (closed_at IS NULL OR (outcome = 'succeeded' AND state = 'running'))
"""


async def lock_by_attempt(connection: Connection, attempt_id: UUID) -> Subject | None:
    """Lock what an event of an attempt is about; None: it is of no task here."""
    return await _lock_subject(connection, LOCK_BY_ATTEMPT, attempt_id)


async def lock_by_reservation(connection: Connection, reservation_id: UUID) -> Subject | None:
    """Lock what an event of a reservation is about: the newest attempt that has it. None: it is of
    no task here.
    """
    return await _lock_subject(connection, LOCK_BY_RESERVATION, reservation_id)


async def _lock_subject(connection: Connection, query: str, subject_id: UUID) -> Subject | None:
    row = await connection.fetchrow(query, subject_id)
    if row is None:
        return None
    return (
        from_json(row["task"], Task),
        from_json(row["experiment"], Experiment),
        from_json(row["attempt"], Attempt),
    )


async def open_of(connection: Connection, experiment_id: UUID) -> Attempt | None:
    return await select_one(connection, Attempt, SELECT_OPEN_ATTEMPT, experiment_id)


async def of_experiments(
    connection: Connection, experiment_ids: Sequence[UUID]
) -> dict[UUID, list[Attempt]]:
    """Return all attempts by experiment, oldest first."""
    by_experiment: dict[UUID, list[Attempt]] = {
        experiment_id: [] for experiment_id in experiment_ids
    }
    for row in await connection.fetch(SELECT_ATTEMPTS, experiment_ids):
        by_experiment[row["experiment_id"]].append(from_json(row["record"], Attempt))
    return by_experiment


async def did_task_hold_gpus(connection: Connection, attempt: Attempt) -> bool:
    """Return whether another attempt held GPUs at some time since this one was requested."""
    has_held: bool = await connection.fetchval(
        DID_TASK_HOLD_GPUS, attempt.task_id, attempt.attempt_id, attempt.requested_at
    )
    return has_held


async def find_left(connection: Connection, task_id: UUID) -> list[Attempt]:
    """Return the ended attempts of a task whose engines may be up."""
    return await select_all(connection, Attempt, SELECT_LEFT, task_id)


async def to_renew(connection: Connection, reported_since: datetime) -> list[Attempt]:
    """Granted attempts whose lease no executor renews yet, unless theirs has not reported since."""
    return await select_all(connection, Attempt, SELECT_TO_RENEW, reported_since)


async def silent(connection: Connection, silent_for: timedelta) -> list[Attempt]:
    """Attempts that an event is still expected of, and that none has changed for a while."""
    return await select_all(connection, Attempt, SELECT_SILENT, silent_for)
