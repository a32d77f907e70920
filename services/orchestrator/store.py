"""The rows of tasks, experiments, attempts and executors' offers, inside a caller's transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from schemas.executor import ExecutorReported
from schemas.orchestrator import ExperimentState, TaskState
from services.orchestrator.domain.offers import Offer
from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.domain.scoring import Scored
from shared.database import Connection, from_json, to_json


async def insert_task(connection: Connection, task: Task) -> None:
    """A new task. Raises asyncpg.UniqueViolationError for a taken name or id."""
    await connection.execute(
        "INSERT INTO task (task_id, namespace, task_name, state, created_at, record)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        task.task_id,
        task.namespace,
        task.task_name,
        task.state.value,
        task.created_at,
        to_json(task),
    )


async def save_task(connection: Connection, task: Task) -> None:
    await connection.execute(
        "UPDATE task SET state = $2, record = $3 WHERE task_id = $1",
        task.task_id,
        task.state.value,
        to_json(task),
    )


async def lock_task(connection: Connection, task_id: UUID) -> Task | None:
    """The task, locked: whatever concerns one task happens one after the other."""
    record = await connection.fetchval(
        "SELECT record FROM task WHERE task_id = $1 FOR UPDATE", task_id
    )
    return from_json(record, Task) if record is not None else None


async def task_by_id(connection: Connection, task_id: UUID) -> Task | None:
    record = await connection.fetchval("SELECT record FROM task WHERE task_id = $1", task_id)
    return from_json(record, Task) if record is not None else None


async def tasks(
    connection: Connection, namespace: str | None, states: Sequence[TaskState], limit: int
) -> list[Task]:
    """Newest first; no states means all."""
    rows = await connection.fetch(
        "SELECT record FROM task WHERE ($1::text IS NULL OR namespace = $1)"
        " AND (cardinality($2::text[]) = 0 OR state = ANY($2))"
        " ORDER BY created_at DESC, task_id DESC LIMIT $3",
        namespace,
        [state.value for state in states],
        limit,
    )
    return [from_json(row["record"], Task) for row in rows]


async def save_experiments(connection: Connection, experiments: Iterable[Experiment]) -> None:
    await connection.executemany(
        "INSERT INTO experiment (experiment_id, task_id, ordinal, state, objective_score, record)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (experiment_id)"
        " DO UPDATE SET state = $4, objective_score = $5, record = $6",
        [
            (e.experiment_id, e.task_id, e.ordinal, e.state.value, e.objective_score, to_json(e))
            for e in experiments
        ],
    )


async def experiment_by_id(connection: Connection, experiment_id: UUID) -> Experiment | None:
    record = await connection.fetchval(
        "SELECT record FROM experiment WHERE experiment_id = $1", experiment_id
    )
    return from_json(record, Experiment) if record is not None else None


async def unfinished_experiments(connection: Connection, task_id: UUID) -> list[Experiment]:
    """In order of expansion."""
    rows = await connection.fetch(
        "SELECT record FROM experiment WHERE task_id = $1"
        " AND state IN ('pending', 'waiting', 'starting', 'running') ORDER BY ordinal",
        task_id,
    )
    return [from_json(row["record"], Experiment) for row in rows]


async def pending_experiments(
    connection: Connection, task_id: UUID, limit: int, failed_before: datetime
) -> list[Experiment]:
    """The next to start; one that has failed since `failed_before` is not among them."""
    rows = await connection.fetch(
        "SELECT record FROM experiment e WHERE task_id = $1 AND state = 'pending' AND NOT EXISTS"
        " (SELECT FROM attempt a WHERE a.experiment_id = e.experiment_id AND a.outcome = 'failed'"
        " AND a.closed_at > $3) ORDER BY ordinal LIMIT $2",
        task_id,
        limit,
        failed_before,
    )
    return [from_json(row["record"], Experiment) for row in rows]


async def tasks_to_repeat(connection: Connection, failed_before: datetime) -> list[UUID]:
    """Running tasks with a pending experiment that has failed, for the last time before that."""
    rows = await connection.fetch(
        "SELECT t.task_id FROM task t WHERE t.state = 'running' AND EXISTS"
        " (SELECT FROM experiment e JOIN attempt a USING (experiment_id)"
        " WHERE e.task_id = t.task_id AND e.state = 'pending' AND a.outcome = 'failed'"
        " GROUP BY e.experiment_id HAVING max(a.closed_at) <= $1)",
        failed_before,
    )
    return [row["task_id"] for row in rows]


async def experiments(
    connection: Connection, task_id: UUID | None, states: Sequence[ExperimentState], limit: int
) -> list[Experiment]:
    """Newest task first, then by ordinal; no states means all."""
    rows = await connection.fetch(
        "SELECT e.record FROM experiment e JOIN task t USING (task_id)"
        " WHERE ($1::uuid IS NULL OR e.task_id = $1)"
        " AND (cardinality($2::text[]) = 0 OR e.state = ANY($2))"
        " ORDER BY t.created_at DESC, t.task_id DESC, e.ordinal LIMIT $3",
        task_id,
        [state.value for state in states],
        limit,
    )
    return [from_json(row["record"], Experiment) for row in rows]


async def tallies(
    connection: Connection, task_ids: Sequence[UUID]
) -> dict[UUID, dict[ExperimentState, int]]:
    """How many experiments of each task are in each state; states without any are absent."""
    rows = await connection.fetch(
        "SELECT task_id, state, count(*) AS n FROM experiment WHERE task_id = ANY($1)"
        " GROUP BY task_id, state",
        task_ids,
    )
    found: dict[UUID, dict[ExperimentState, int]] = {task_id: {} for task_id in task_ids}
    for row in rows:
        found[row["task_id"]][ExperimentState(row["state"])] = row["n"]
    return found


async def succeeded_experiments(connection: Connection, task_id: UUID) -> list[Scored]:
    rows = await connection.fetch(
        "SELECT experiment_id, ordinal, objective_score FROM experiment"
        " WHERE task_id = $1 AND state = 'succeeded'",
        task_id,
    )
    return [
        Scored(
            experiment_id=row["experiment_id"], ordinal=row["ordinal"], score=row["objective_score"]
        )
        for row in rows
    ]


async def save_attempt(connection: Connection, attempt: Attempt) -> None:
    needs_renewal = (
        attempt.executor_id is not None
        and not attempt.is_accepted
        and not attempt.reservation_ended
        and attempt.closed_at is None
    )
    await connection.execute(
        "INSERT INTO attempt (attempt_id, experiment_id, task_id, reservation_id, executor_id,"
        " outcome, needs_renewal, requested_at, closed_at, record)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (attempt_id) DO UPDATE SET"
        " executor_id = $5, outcome = $6, needs_renewal = $7, closed_at = $9, record = $10,"
        " updated_at = now()",
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
    return _attempt(
        await connection.fetchval(
            "SELECT record FROM attempt WHERE reservation_id = $1", reservation_id
        )
    )


async def attempt_by_id(connection: Connection, attempt_id: UUID) -> Attempt | None:
    return _attempt(
        await connection.fetchval("SELECT record FROM attempt WHERE attempt_id = $1", attempt_id)
    )


async def open_attempt(connection: Connection, experiment_id: UUID) -> Attempt | None:
    """The attempt of an experiment that is not closed."""
    return _attempt(
        await connection.fetchval(
            "SELECT record FROM attempt WHERE experiment_id = $1 AND closed_at IS NULL",
            experiment_id,
        )
    )


async def attempts_of(
    connection: Connection, experiment_ids: Sequence[UUID]
) -> dict[UUID, list[Attempt]]:
    """All attempts by experiment, oldest first."""
    rows = await connection.fetch(
        "SELECT experiment_id, record FROM attempt WHERE experiment_id = ANY($1)"
        " ORDER BY requested_at, attempt_id",
        experiment_ids,
    )
    found: dict[UUID, list[Attempt]] = {experiment_id: [] for experiment_id in experiment_ids}
    for row in rows:
        found[row["experiment_id"]].append(from_json(row["record"], Attempt))
    return found


async def open_attempts(connection: Connection, task_id: UUID) -> int:
    """How many reservations of a task are outstanding."""
    count: int = await connection.fetchval(
        "SELECT count(*) FROM attempt WHERE task_id = $1 AND closed_at IS NULL", task_id
    )
    return count


async def was_started(connection: Connection, task_id: UUID) -> bool:
    """Whether an executor was ever told to start an attempt of the task."""
    started: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM attempt WHERE task_id = $1 AND executor_id IS NOT NULL)",
        task_id,
    )
    return started


async def did_task_hold_gpus(connection: Connection, attempt: Attempt) -> bool:
    """Whether another attempt of the task held GPUs at some time since this one was asked for."""
    held: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM attempt WHERE task_id = $1 AND attempt_id <> $2"
        " AND executor_id IS NOT NULL AND coalesce(closed_at, 'infinity') > $3)",
        attempt.task_id,
        attempt.attempt_id,
        attempt.requested_at,
    )
    return held


async def attempts_to_renew(connection: Connection, heard_since: datetime) -> list[Attempt]:
    """Granted attempts whose lease no executor keeps yet, unless it has fallen silent."""
    rows = await connection.fetch(
        "SELECT record FROM attempt a WHERE needs_renewal AND NOT EXISTS (SELECT FROM"
        " executor_offer o WHERE o.executor_id = a.executor_id AND o.received_at <= $1)",
        heard_since,
    )
    return [from_json(row["record"], Attempt) for row in rows]


async def silent_attempts(connection: Connection, silent_for: timedelta) -> list[Attempt]:
    """Attempts that something is still expected of, and of which nothing was heard for a while."""
    rows = await connection.fetch(
        "SELECT a.record FROM attempt a JOIN experiment e USING (experiment_id)"
        " WHERE a.updated_at <= now() - $1::interval AND (a.closed_at IS NULL"
        " OR (a.outcome = 'succeeded' AND e.state = 'running'))",
        silent_for,
    )
    return [from_json(row["record"], Attempt) for row in rows]


async def save_offer(connection: Connection, report: ExecutorReported, now: datetime) -> None:
    """Keep an executor's report unless a newer one is known."""
    offer = Offer(
        executor_id=report.executor_id,
        runtimes=report.runtimes,
        benchmark_tools=report.benchmark_tools,
    )
    await connection.execute(
        "INSERT INTO executor_offer AS known"
        " (executor_id, boot_id, revision, occurred_at, received_at, offer)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (executor_id) DO UPDATE SET"
        " boot_id = $2, revision = $3, occurred_at = $4, received_at = $5, offer = $6"
        " WHERE CASE WHEN known.boot_id = $2 THEN known.revision < $3"
        " ELSE known.occurred_at < $4 END",
        report.executor_id,
        report.boot_id,
        report.revision,
        report.occurred_at,
        now,
        to_json(offer),
    )


async def offers(connection: Connection, since: datetime) -> list[Offer]:
    """What the executors offer that reported after `since`."""
    rows = await connection.fetch(
        "SELECT offer FROM executor_offer WHERE received_at > $1 ORDER BY executor_id", since
    )
    return [from_json(row["offer"], Offer) for row in rows]


def _attempt(record: Any) -> Attempt | None:
    return from_json(record, Attempt) if record is not None else None
