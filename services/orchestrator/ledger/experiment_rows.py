"""The rows of experiments, inside a caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import astuple

from schemas.base import UtcDatetime
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ListExperiments
from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.ledger.record_column import select_all, select_one
from shared.postgres.database import Connection, from_json

Ordinal = Annotated[int, Meta(ge=1, le=2**31 - 1)]

# Their attempts go with them.
DELETE_EXPERIMENTS: Final = """
DELETE FROM experiment WHERE task_id = $1 AND ($2::uuid IS NULL OR experiment_id = $2)
"""

SELECT_EXPERIMENT: Final = "SELECT record FROM experiment WHERE experiment_id = $1"

SELECT_BY_ID: Final = "SELECT record FROM experiment WHERE experiment_id = ANY ($1)"

SELECT_UNFINISHED: Final = """
SELECT record FROM experiment
WHERE task_id = $1 AND state IN ('pending', 'waiting', 'starting', 'running') ORDER BY ordinal
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

COUNT_EXPERIMENTS: Final = """
SELECT task_id, state, count(*) AS n FROM experiment WHERE task_id = ANY ($1)
GROUP BY task_id, state
"""

SELECT_WAITING: Final = """
SELECT attempt.record AS attempt, experiment.record AS experiment
FROM attempt JOIN experiment USING (experiment_id)
WHERE closed_at IS NULL AND executor_id IS NULL AND state = 'waiting'
  AND experiment.record #>> '{engine,endpoint,url}' IS NULL
ORDER BY (experiment.record -> 'request' ->> 'priority')::int DESC NULLS LAST, requested_at LIMIT $1
"""

LOCK_ENDPOINTS: Final = "SELECT pg_try_advisory_xact_lock(hashtext('orchestrator_endpoints'))"
SELECT_ENDPOINTS: Final = """
SELECT attempt.record AS attempt, experiment.record AS experiment, task.record AS task
FROM attempt JOIN experiment USING (experiment_id) JOIN task ON task.task_id = attempt.task_id
WHERE closed_at IS NULL AND experiment.record #>> '{engine,endpoint,url}' IS NOT NULL
  AND experiment.state IN ('waiting', 'starting', 'running')
ORDER BY requested_at, attempt_id LIMIT $1
"""

# Those with answers, and the first that is not lost to the comparison: it may be under way still.
SELECT_COMPARED: Final = """
SELECT record, is_baseline FROM (
    SELECT record, ordinal, state = 'succeeded' AND record ->> 'answers' IS NOT NULL
        AND record #>> '{slo,quality}' IS NULL AS is_uncompared,
        ordinal = min(ordinal) FILTER (WHERE state NOT IN ('failed', 'cancelled')
            AND coalesce(record #>> '{run,role}', 'search') = 'search'
            AND (state <> 'succeeded' OR record ->> 'answers' IS NOT NULL)) OVER () AS is_baseline
    FROM experiment WHERE task_id = $1) compared
WHERE is_uncompared OR is_baseline ORDER BY ordinal
"""


class ExperimentPlace(Struct, frozen=True, array_like=True, tag="experiment"):
    """Where an experiment is in a list: newest task first, then by ordinal."""

    task_created_at: UtcDatetime
    task_id: UUID
    ordinal: Ordinal


async def delete(connection: Connection, experiment: Experiment) -> None:
    """Delete an experiment with its attempts."""
    await connection.execute(DELETE_EXPERIMENTS, experiment.task_id, experiment.experiment_id)


async def find(connection: Connection, experiment_id: UUID) -> Experiment | None:
    return await select_one(connection, Experiment, SELECT_EXPERIMENT, experiment_id)


async def find_all(
    connection: Connection, experiment_ids: Sequence[UUID]
) -> dict[UUID, Experiment]:
    experiments = await select_all(connection, Experiment, SELECT_BY_ID, experiment_ids)
    return {experiment.experiment_id: experiment for experiment in experiments}


async def find_unfinished(connection: Connection, task_id: UUID) -> list[Experiment]:
    """Return unfinished experiments in order of expansion."""
    return await select_all(connection, Experiment, SELECT_UNFINISHED, task_id)


async def page(
    connection: Connection,
    query: ListExperiments,
    start: ExperimentPlace | None,
    limit: int,
    finished_since: datetime | None,
) -> list[tuple[Experiment, ExperimentPlace]]:
    """Return a page, newest task first, then by ordinal; no states means all.

    None of a task that finished at `finished_since` or before.
    """
    names = [state.value for state in query.states]
    place = astuple(start) if start is not None else (None, None, None)
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
    experiments = [(from_json(row["record"], Experiment), row["created_at"]) for row in rows]
    return [
        (experiment, ExperimentPlace(at, experiment.task_id, experiment.ordinal))
        for experiment, at in experiments
    ]


async def tallies(
    connection: Connection, task_ids: Sequence[UUID]
) -> dict[UUID, dict[ExperimentState, int]]:
    """Count each task's experiments by state; states without any are absent."""
    tallies_by_task: dict[UUID, dict[ExperimentState, int]] = {task_id: {} for task_id in task_ids}
    for row in await connection.fetch(COUNT_EXPERIMENTS, task_ids):
        tallies_by_task[row["task_id"]][ExperimentState(row["state"])] = row["n"]
    return tallies_by_task


async def waiting(connection: Connection, limit: int) -> list[tuple[Experiment, Attempt]]:
    """Return experiments that wait for GPUs, of the highest priority and longest first."""
    rows = await connection.fetch(SELECT_WAITING, limit)
    return [
        (from_json(row["experiment"], Experiment), from_json(row["attempt"], Attempt))
        for row in rows
    ]


async def lock_endpoints(connection: Connection) -> bool:
    """Return whether this transaction alone may start attempts at servers now."""
    is_locked: bool = await connection.fetchval(LOCK_ENDPOINTS)
    return is_locked


async def open_endpoints(
    connection: Connection, limit: int
) -> list[tuple[Task, Experiment, Attempt]]:
    """Return the open attempts at servers that run already, the oldest first."""
    return [
        (
            from_json(row["task"], Task),
            from_json(row["experiment"], Experiment),
            from_json(row["attempt"], Attempt),
        )
        for row in await connection.fetch(SELECT_ENDPOINTS, limit)
    ]


async def to_compare(
    connection: Connection, task_id: UUID
) -> tuple[Experiment | None, list[Experiment]]:
    """Return the experiment that answers of the task are compared with, which may not have ended,
    and those with answers whose agreement with it is not known yet, in order.
    """
    rows = await connection.fetch(SELECT_COMPARED, task_id)
    pairs = [(from_json(row["record"], Experiment), row["is_baseline"]) for row in rows]
    baseline = next((experiment for experiment, is_baseline in pairs if is_baseline), None)
    return baseline, [experiment for experiment, _ in pairs if _is_uncompared(experiment)]


def _is_uncompared(experiment: Experiment) -> bool:
    has_verdict = experiment.slo is not None and experiment.slo.quality is not None
    is_measured = experiment.state is ExperimentState.SUCCEEDED
    return is_measured and experiment.answers is not None and not has_verdict
