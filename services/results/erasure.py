"""Forgetting what was measured of deleted tasks and experiments."""

from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.executor.attempts import AttemptFinished
from shared.postgres.database import Connection

# Deletion and late events of one task take turns.
LOCK_TASK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text, 0))"

INSERT_DELETED: Final = "INSERT INTO deleted VALUES ($1, $2) ON CONFLICT DO NOTHING"
IS_DELETED: Final = "SELECT EXISTS (SELECT FROM deleted WHERE subject_id = ANY ($1))"

# What usage reports need stays: GPUs, times and energy. No sample opens an emptied summary again.
# It comes first and waits for a transaction that computes one: the samples copied for that are seen
# then. In the order in which late samples open them.
EMPTY_SUMMARIES: Final = """
WITH emptied AS MATERIALIZED (
    SELECT summary.attempt_id FROM summary JOIN attempt USING (attempt_id)
    WHERE task_id = $1 AND ($2::uuid IS NULL OR attempt.experiment_id = $2)
    ORDER BY summary.attempt_id FOR UPDATE OF summary)
UPDATE summary SET pending = false, version = 0, gpu_monitoring = NULL, whole_run = NULL,
    samples_until = '-infinity'
FROM emptied WHERE summary.attempt_id = emptied.attempt_id
"""

DELETE_SAMPLES: Final = """
DELETE FROM experiment_sample USING attempt
WHERE experiment_sample.attempt_id = attempt.attempt_id
  AND task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""

DELETE_REQUESTS: Final = """
DELETE FROM level_requests USING attempt
WHERE level_requests.attempt_id = attempt.attempt_id
  AND task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""

DELETE_ENGINE_RUNS: Final = """
DELETE FROM engine_run WHERE task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""

EMPTY_ATTEMPTS: Final = """
UPDATE attempt SET event = '' WHERE task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""


async def lock_task(connection: Connection, task_id: UUID) -> None:
    await connection.execute(LOCK_TASK, task_id)


async def erase(
    connection: Connection, task_id: UUID, experiment_id: UUID | None, now: datetime
) -> None:
    """Forget what was measured of a task, or of one experiment of it, also what comes late."""
    await connection.execute(INSERT_DELETED, experiment_id or task_id, now)
    for statement in (
        EMPTY_SUMMARIES,
        DELETE_SAMPLES,
        DELETE_REQUESTS,
        DELETE_ENGINE_RUNS,
        EMPTY_ATTEMPTS,
    ):
        await connection.execute(statement, task_id, experiment_id)


async def is_deleted(connection: Connection, event: AttemptFinished) -> bool:
    """Return True if the attempt's task or experiment was deleted."""
    deleted: bool = await connection.fetchval(IS_DELETED, [event.task_id, event.experiment_id])
    return deleted
