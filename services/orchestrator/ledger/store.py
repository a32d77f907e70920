"""The rows of tasks, experiments and attempts, inside a caller's transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import astuple

from schemas.base import UtcDatetime
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ListExperiments, ListTasks
from services.orchestrator.domain.records import Attempt, Experiment, Task
from shared.postgres.database import Connection, from_json, to_json

R = TypeVar("R")
Ordinal = Annotated[int, Meta(ge=1, le=2**31 - 1)]

INSERT_TASK: Final = """
INSERT INTO task (task_id, namespace, task_name, state, created_at, record)
VALUES ($1, $2, $3, $4, $5, $6)
"""

UPDATE_TASK: Final = """
UPDATE task SET state = $2, record = $3, finished_at = $4 WHERE task_id = $1
"""
DELETE_TASK: Final = "DELETE FROM task WHERE task_id = $1"
SELECT_TASK: Final = "SELECT record FROM task WHERE task_id = $1"
LOCK_TASK: Final = "SELECT record FROM task WHERE task_id = $1 FOR UPDATE"

SELECT_TASKS: Final = """
SELECT record FROM task
WHERE ($1::text IS NULL OR namespace = $1)
  AND (cardinality($2::text[]) = 0 OR state = ANY ($2))
  AND ($4::timestamptz IS NULL OR (created_at, task_id) < ($4, $5::uuid))
  AND ($6::timestamptz IS NULL OR coalesce(finished_at, 'infinity') > $6)
ORDER BY created_at DESC, task_id DESC LIMIT $3
"""

UPSERT_EXPERIMENT: Final = """
INSERT INTO experiment (experiment_id, task_id, ordinal, state, objective_score, record)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (experiment_id) DO UPDATE SET state = $4, objective_score = $5, record = $6
"""

# Their attempts go with them.
DELETE_EXPERIMENTS: Final = """
DELETE FROM experiment WHERE task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""

SELECT_EXPERIMENT: Final = "SELECT record FROM experiment WHERE experiment_id = $1"

SELECT_UNFINISHED: Final = """
SELECT record FROM experiment
WHERE task_id = $1 AND state IN ('pending', 'waiting', 'starting', 'running') ORDER BY ordinal
"""

SELECT_PENDING: Final = """
SELECT record FROM experiment
WHERE task_id = $1 AND state = 'pending' AND NOT EXISTS (
    SELECT FROM attempt WHERE attempt.experiment_id = experiment.experiment_id
      AND outcome = 'failed' AND closed_at > $3)
ORDER BY ordinal LIMIT $2
"""

# The latter: a search of which nothing is under way, as no executor was present.
SELECT_TASKS_TO_ADVANCE: Final = """
SELECT task_id FROM task
WHERE state = 'running' AND EXISTS (
    SELECT FROM experiment JOIN attempt USING (experiment_id)
    WHERE experiment.task_id = task.task_id AND experiment.state = 'pending' AND outcome = 'failed'
    GROUP BY experiment_id HAVING max(closed_at) <= $1)
OR state IN ('accepted', 'running') AND NOT EXISTS (
    SELECT FROM experiment WHERE experiment.task_id = task.task_id
      AND experiment.state IN ('pending', 'waiting', 'starting', 'running'))
"""

SELECT_EXPERIMENTS: Final = """
SELECT experiment.record, created_at FROM experiment JOIN task USING (task_id)
WHERE ($1::uuid IS NULL OR task_id = $1)
  AND (cardinality($2::text[]) = 0 OR experiment.state = ANY ($2))
  AND ($4::timestamptz IS NULL OR (created_at, task_id, -ordinal) < ($4, $5::uuid, -$6::int))
  AND ($7::timestamptz IS NULL OR coalesce(finished_at, 'infinity') > $7)
  AND ($8::text IS NULL OR namespace = $8)
  AND ($9::text IS NULL OR EXISTS (
    SELECT FROM attempt, json_array_elements(attempt.record -> 'devices') AS device
    WHERE attempt.experiment_id = experiment.experiment_id AND device ->> 'node_id' = $9))
ORDER BY created_at DESC, task_id DESC, ordinal LIMIT $3
"""

SELECT_EXPERIMENT_PLACE: Final = """
SELECT created_at, task_id, ordinal FROM experiment JOIN task USING (task_id)
WHERE experiment_id = $1
"""

COUNT_EXPERIMENTS: Final = """
SELECT task_id, state, count(*) AS n FROM experiment WHERE task_id = ANY ($1)
GROUP BY task_id, state
"""

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

SELECT_WAITING: Final = """
SELECT attempt.record AS attempt, experiment.record AS experiment
FROM attempt JOIN experiment USING (experiment_id)
WHERE closed_at IS NULL AND executor_id IS NULL AND state = 'waiting'
ORDER BY (experiment.record -> 'request' ->> 'priority')::int DESC NULLS LAST, requested_at LIMIT $1
"""

SELECT_SILENT: Final = """
SELECT attempt.record FROM attempt JOIN experiment USING (experiment_id)
WHERE updated_at <= now() - $1::interval
  AND (closed_at IS NULL OR (outcome = 'succeeded' AND state = 'running'))
"""


class TaskPlace(Struct, frozen=True, array_like=True, tag="task"):
    """Where a task is in a list, newest first."""

    created_at: UtcDatetime
    task_id: UUID


class ExperimentPlace(Struct, frozen=True, array_like=True, tag="experiment"):
    """Where an experiment is in a list: newest task first, then by ordinal."""

    task_created_at: UtcDatetime
    task_id: UUID
    ordinal: Ordinal


async def insert_task(connection: Connection, task: Task) -> None:
    """A new task. Raises asyncpg.UniqueViolationError for a taken name or id."""
    await connection.execute(
        INSERT_TASK,
        task.task_id,
        task.namespace,
        task.task_name,
        task.state.value,
        task.created_at,
        to_json(task),
    )


async def save_task(connection: Connection, task: Task) -> None:
    await connection.execute(
        UPDATE_TASK, task.task_id, task.state.value, to_json(task), task.finished_at
    )


async def delete_task(connection: Connection, task_id: UUID) -> None:
    """With its experiments and their attempts."""
    await connection.execute(DELETE_EXPERIMENTS, task_id, None)
    await connection.execute(DELETE_TASK, task_id)


async def delete_experiment(connection: Connection, experiment: Experiment) -> None:
    """With its attempts."""
    await connection.execute(DELETE_EXPERIMENTS, experiment.task_id, experiment.experiment_id)


async def lock_task(connection: Connection, task_id: UUID) -> Task | None:
    """The task, locked: whatever concerns one task happens one after the other."""
    return await _one(connection, Task, LOCK_TASK, task_id)


async def task_by_id(connection: Connection, task_id: UUID) -> Task | None:
    return await _one(connection, Task, SELECT_TASK, task_id)


async def tasks(
    connection: Connection,
    query: ListTasks,
    after: TaskPlace | None,
    limit: int,
    finished_since: datetime | None,
) -> list[Task]:
    """Newest first; no states means all. None finished at `finished_since` or before."""
    names = [state.value for state in query.states]
    place = (after.created_at, after.task_id) if after is not None else (None, None)
    return await _all(
        connection, Task, SELECT_TASKS, query.namespace, names, limit, *place, finished_since
    )


async def save_experiments(connection: Connection, experiments: Iterable[Experiment]) -> None:
    await connection.executemany(
        UPSERT_EXPERIMENT,
        [
            (e.experiment_id, e.task_id, e.ordinal, e.state.value, e.objective_score, to_json(e))
            for e in experiments
        ],
    )


async def experiment_by_id(connection: Connection, experiment_id: UUID) -> Experiment | None:
    return await _one(connection, Experiment, SELECT_EXPERIMENT, experiment_id)


async def unfinished_experiments(connection: Connection, task_id: UUID) -> list[Experiment]:
    """In order of expansion."""
    return await _all(connection, Experiment, SELECT_UNFINISHED, task_id)


async def pending_experiments(
    connection: Connection, task_id: UUID, limit: int, failed_before: datetime
) -> list[Experiment]:
    """The next to start; one that has failed since `failed_before` is not among them."""
    return await _all(connection, Experiment, SELECT_PENDING, task_id, limit, failed_before)


async def tasks_to_advance(connection: Connection, failed_before: datetime) -> list[UUID]:
    """Running tasks with a pending experiment that has failed, for the last time before that, and
    those with nothing unfinished.
    """
    rows = await connection.fetch(SELECT_TASKS_TO_ADVANCE, failed_before)
    return [row["task_id"] for row in rows]


async def experiments(
    connection: Connection,
    query: ListExperiments,
    after: ExperimentPlace | None,
    limit: int,
    finished_since: datetime | None,
) -> list[tuple[Experiment, ExperimentPlace]]:
    """Newest task first, then by ordinal; no states means all.

    None of a task that finished at `finished_since` or before.
    """
    names = [state.value for state in query.states]
    place = astuple(after) if after is not None else (None, None, None)
    rows = await connection.fetch(
        SELECT_EXPERIMENTS,
        query.task_id,
        names,
        limit,
        *place,
        finished_since,
        query.namespace,
        query.node_id,
    )
    found = [(from_json(row["record"], Experiment), row["created_at"]) for row in rows]
    return [(each, ExperimentPlace(at, each.task_id, each.ordinal)) for each, at in found]


async def place_of_experiment(
    connection: Connection, experiment_id: UUID
) -> ExperimentPlace | None:
    row = await connection.fetchrow(SELECT_EXPERIMENT_PLACE, experiment_id)
    return ExperimentPlace(*row) if row is not None else None


async def tallies(
    connection: Connection, task_ids: Sequence[UUID]
) -> dict[UUID, dict[ExperimentState, int]]:
    """How many experiments of each task are in each state; states without any are absent."""
    found: dict[UUID, dict[ExperimentState, int]] = {task_id: {} for task_id in task_ids}
    for row in await connection.fetch(COUNT_EXPERIMENTS, task_ids):
        found[row["task_id"]][ExperimentState(row["state"])] = row["n"]
    return found


async def save_attempt(connection: Connection, attempt: Attempt) -> None:
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


async def attempt_of_reservation(connection: Connection, reservation_id: UUID) -> Attempt | None:
    return await _one(connection, Attempt, SELECT_ATTEMPT_OF_RESERVATION, reservation_id)


async def attempt_by_id(connection: Connection, attempt_id: UUID) -> Attempt | None:
    return await _one(connection, Attempt, SELECT_ATTEMPT, attempt_id)


async def open_attempt(connection: Connection, experiment_id: UUID) -> Attempt | None:
    return await _one(connection, Attempt, SELECT_OPEN_ATTEMPT, experiment_id)


async def attempts_of(
    connection: Connection, experiment_ids: Sequence[UUID]
) -> dict[UUID, list[Attempt]]:
    """All attempts by experiment, oldest first."""
    found: dict[UUID, list[Attempt]] = {experiment_id: [] for experiment_id in experiment_ids}
    for row in await connection.fetch(SELECT_ATTEMPTS, experiment_ids):
        found[row["experiment_id"]].append(from_json(row["record"], Attempt))
    return found


async def open_attempts(connection: Connection, task_id: UUID) -> int:
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


async def attempts_to_renew(connection: Connection, reported_since: datetime) -> list[Attempt]:
    """Granted attempts whose lease no executor renews yet, unless theirs has not reported since."""
    return await _all(connection, Attempt, SELECT_TO_RENEW, reported_since)


async def waiting_experiments(
    connection: Connection, limit: int
) -> list[tuple[Experiment, Attempt]]:
    """Those that wait for GPUs, of the highest priority and longest first."""
    rows = await connection.fetch(SELECT_WAITING, limit)
    return [
        (from_json(row["experiment"], Experiment), from_json(row["attempt"], Attempt))
        for row in rows
    ]


async def silent_attempts(connection: Connection, silent_for: timedelta) -> list[Attempt]:
    """Attempts that an event is still expected of, and that none has changed for a while."""
    return await _all(connection, Attempt, SELECT_SILENT, silent_for)


async def _one(connection: Connection, type_: type[R], query: str, *arguments: Any) -> R | None:
    record = await connection.fetchval(query, *arguments)
    return from_json(record, type_) if record is not None else None


async def _all(connection: Connection, type_: type[R], query: str, *arguments: Any) -> list[R]:
    rows = await connection.fetch(query, *arguments)
    return [from_json(row["record"], type_) for row in rows]
