"""The rows of tasks, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.base import Command, UtcDatetime
from schemas.orchestrator.views import ListTasks
from schemas.task.strategies import Strategy
from services.orchestrator.domain.records import Task
from services.orchestrator.ledger.experiment_rows import DELETE_EXPERIMENTS
from services.orchestrator.ledger.record_column import select_all, select_one
from shared.postgres.database import Connection, to_json

INSERT_TASK: Final = """
INSERT INTO task (task_id, namespace, task_name, state, created_at, finished_at, record)
VALUES ($1, $2, $3, $4, $5, $6, $7)
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

SELECT_AUDITED: Final = """
SELECT task_name, state, record ->> 'requester' AS requester FROM task WHERE task_id = $1
"""

SELECT_TASKS_OF_STRATEGIES: Final = """
SELECT task_id FROM task WHERE state IN ('accepted', 'running')
    AND record #>> '{file,optimization,strategy}' = ANY ($1::text[])
"""

SELECT_SEARCHES: Final = """
SELECT EXISTS (
    SELECT FROM task WHERE state IN ('accepted', 'running', 'paused')
      AND record #>> '{file,optimization,strategy}' = ANY ($1::text[]))
"""


class TaskPlace(Struct, frozen=True, array_like=True, tag="task"):
    """Where a task is in a list, newest first."""

    created_at: UtcDatetime
    task_id: UUID


async def read_audited_state(connection: Connection, command: Command) -> dict[str, Any] | None:
    """Return what the audit log keeps of the task that a command names; None: of none."""
    task_id = getattr(command, "task_id", None)
    row = None if task_id is None else await connection.fetchrow(SELECT_AUDITED, task_id)
    return None if row is None else dict(row)


async def insert(connection: Connection, task: Task) -> None:
    """A new task. Raises asyncpg.UniqueViolationError for a taken name or id."""
    await connection.execute(
        INSERT_TASK,
        task.task_id,
        task.namespace,
        task.task_name,
        task.state.value,
        task.created_at,
        task.finished_at,
        to_json(task),
    )


async def delete(connection: Connection, task_id: UUID) -> None:
    """Delete a task with its experiments and their attempts."""
    await connection.execute(DELETE_EXPERIMENTS, task_id, None)
    await connection.execute(DELETE_TASK, task_id)


async def lock(connection: Connection, task_id: UUID) -> Task | None:
    """The task, locked: whatever concerns one task happens one after the other."""
    return await select_one(connection, Task, LOCK_TASK, task_id)


async def find(connection: Connection, task_id: UUID) -> Task | None:
    return await select_one(connection, Task, SELECT_TASK, task_id)


async def page(
    connection: Connection,
    query: ListTasks,
    start: TaskPlace | None,
    limit: int,
    finished_since: datetime | None,
) -> list[Task]:
    """Return a page, newest first; no states means all. None finished at `finished_since` or
    before.
    """
    names = [state.value for state in query.states]
    place = (start.created_at, start.task_id) if start is not None else (None, None)
    return await select_all(
        connection, Task, SELECT_TASKS, query.namespace, names, limit, *place, finished_since
    )


async def to_advance(connection: Connection, failed_before: datetime) -> list[UUID]:
    """Running tasks with a pending experiment that has failed, for the last time before that, and
    those with nothing unfinished.
    """
    rows = await connection.fetch(SELECT_TASKS_TO_ADVANCE, failed_before)
    return [row["task_id"] for row in rows]


async def has_searches(connection: Connection, strategies: Sequence[Strategy]) -> bool:
    """Return whether a task that is not over searches by one of these strategies."""
    names = [strategy.value for strategy in strategies]
    has_any: bool = await connection.fetchval(SELECT_SEARCHES, names)
    return has_any


async def find_searches(connection: Connection, strategies: Sequence[Strategy]) -> list[UUID]:
    """Return the tasks that may go on and search by one of these strategies."""
    names = [strategy.value for strategy in strategies]
    rows = await connection.fetch(SELECT_TASKS_OF_STRATEGIES, names)
    return [row["task_id"] for row in rows]
