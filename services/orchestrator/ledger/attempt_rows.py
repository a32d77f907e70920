"""The rows of attempts, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from services.orchestrator.domain.records import Attempt
from services.orchestrator.ledger.record_column import select_all, select_one
from shared.postgres.database import Connection, from_json, to_json

UPSERT_ATTEMPT: Final = """
INSERT INTO attempt (attempt_id, experiment_id, task_id, reservation_id, executor_id, outcome,
                     needs_renewal, requested_at, closed_at, record)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (attempt_id) DO UPDATE SET executor_id = $5, outcome = $6, needs_renewal = $7,
    closed_at = $9, record = $10, updated_at = now()
"""

SELECT_ATTEMPT: Final = "SELECT record FROM attempt WHERE attempt_id = $1"

SELECT_ATTEMPT_OF_RESERVATION: Final = "SELECT record FROM attempt WHERE reservation_id = $1"

SELECT_OPEN_ATTEMPT: Final = """
SELECT record FROM attempt WHERE experiment_id = $1 AND closed_at IS NULL
"""

SELECT_ATTEMPTS: Final = """
SELECT experiment_id, record FROM attempt WHERE experiment_id = ANY ($1)
ORDER BY requested_at, attempt_id
"""

COUNT_OPEN_ATTEMPTS: Final = """
SELECT count(*) FROM attempt WHERE task_id = $1 AND closed_at IS NULL
"""

WAS_STARTED: Final = """
SELECT EXISTS (SELECT FROM attempt WHERE task_id = $1 AND executor_id IS NOT NULL)
"""

DID_TASK_HOLD_GPUS: Final = """
SELECT EXISTS (
    SELECT FROM attempt WHERE task_id = $1 AND attempt_id <> $2 AND executor_id IS NOT NULL
      AND coalesce(closed_at, 'infinity') > $3)
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

SELECT_GPU_MODEL: Final = """
SELECT record #>> '{devices,0,name}' FROM attempt
WHERE task_id = $1 AND record #>> '{devices,0,name}' IS NOT NULL ORDER BY requested_at LIMIT 1
"""


async def save(connection: Connection, attempt: Attempt) -> None:
    needs_renewal = (
        attempt.executor_id is not None
        and not attempt.is_accepted
        and not attempt.reservation_ended
        and attempt.closed_at is None
    )
    await connection.execute(
        UPSERT_ATTEMPT,
        attempt.attempt_id,
        attempt.experiment_id,
        attempt.task_id,
        attempt.reservation_id,
        attempt.executor_id,
        attempt.outcome.value if attempt.outcome else None,
        needs_renewal,
        attempt.requested_at,
        attempt.closed_at,
        to_json(attempt),
    )


async def of_reservation(connection: Connection, reservation_id: UUID) -> Attempt | None:
    return await select_one(connection, Attempt, SELECT_ATTEMPT_OF_RESERVATION, reservation_id)


async def find(connection: Connection, attempt_id: UUID) -> Attempt | None:
    return await select_one(connection, Attempt, SELECT_ATTEMPT, attempt_id)


async def open_of(connection: Connection, experiment_id: UUID) -> Attempt | None:
    return await select_one(connection, Attempt, SELECT_OPEN_ATTEMPT, experiment_id)


async def of_experiments(
    connection: Connection, experiment_ids: Sequence[UUID]
) -> dict[UUID, list[Attempt]]:
    """All attempts by experiment, oldest first."""
    found: dict[UUID, list[Attempt]] = {experiment_id: [] for experiment_id in experiment_ids}
    for row in await connection.fetch(SELECT_ATTEMPTS, experiment_ids):
        found[row["experiment_id"]].append(from_json(row["record"], Attempt))
    return found


async def count_open(connection: Connection, task_id: UUID) -> int:
    """How many reservations of a task are outstanding."""
    count: int = await connection.fetchval(COUNT_OPEN_ATTEMPTS, task_id)
    return count


async def was_started(connection: Connection, task_id: UUID) -> bool:
    """Whether the start of an attempt of the task was ever sent to an executor."""
    started: bool = await connection.fetchval(WAS_STARTED, task_id)
    return started


async def did_task_hold_gpus(connection: Connection, attempt: Attempt) -> bool:
    """Whether another attempt of the task held GPUs at some time since this one was requested."""
    held: bool = await connection.fetchval(
        DID_TASK_HOLD_GPUS, attempt.task_id, attempt.attempt_id, attempt.requested_at
    )
    return held


async def to_renew(connection: Connection, reported_since: datetime) -> list[Attempt]:
    """Granted attempts whose lease no executor renews yet, unless theirs has not reported since."""
    return await select_all(connection, Attempt, SELECT_TO_RENEW, reported_since)


async def silent(connection: Connection, silent_for: timedelta) -> list[Attempt]:
    """Attempts that an event is still expected of, and that none has changed for a while."""
    return await select_all(connection, Attempt, SELECT_SILENT, silent_for)


async def first_gpu_model(connection: Connection, task_id: UUID) -> str | None:
    """The GPU model that the task's first attempt ran on; None before one runs."""
    model: str | None = await connection.fetchval(SELECT_GPU_MODEL, task_id)
    return model
