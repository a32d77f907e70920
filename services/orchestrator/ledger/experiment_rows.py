"""The rows of experiments, inside a caller's transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import astuple

from schemas.base import UtcDatetime
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import ListExperiments
from services.orchestrator.domain.records import Attempt, Experiment
from services.orchestrator.ledger.record_column import select_all, select_one
from shared.postgres.database import Connection, from_json, to_json

Ordinal = Annotated[int, Meta(ge=1, le=2**31 - 1)]

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

SELECT_WAITING: Final = """
SELECT attempt.record AS attempt, experiment.record AS experiment
FROM attempt JOIN experiment USING (experiment_id)
WHERE closed_at IS NULL AND executor_id IS NULL AND state = 'waiting'
ORDER BY (experiment.record -> 'request' ->> 'priority')::int DESC NULLS LAST, requested_at LIMIT $1
"""

SELECT_UNCOMPARED: Final = """
SELECT record FROM experiment
WHERE task_id = $1 AND state = 'succeeded' AND record ->> 'answers' IS NOT NULL
      AND record #>> '{slo,quality}' IS NULL
ORDER BY ordinal
"""

# The first that is not lost to the comparison: it may be under way still.
SELECT_BASELINE: Final = """
SELECT record FROM experiment
WHERE task_id = $1 AND state NOT IN ('failed', 'cancelled')
      AND coalesce(record #>> '{run,role}', 'search') = 'search'
      AND (state <> 'succeeded' OR record ->> 'answers' IS NOT NULL)
ORDER BY ordinal LIMIT 1
"""


class ExperimentPlace(Struct, frozen=True, array_like=True, tag="experiment"):
    """Where an experiment is in a list: newest task first, then by ordinal."""

    task_created_at: UtcDatetime
    task_id: UUID
    ordinal: Ordinal


async def save(connection: Connection, experiments: Iterable[Experiment]) -> None:
    await connection.executemany(
        UPSERT_EXPERIMENT,
        [
            (e.experiment_id, e.task_id, e.ordinal, e.state.value, e.objective_score, to_json(e))
            for e in experiments
        ],
    )


async def delete(connection: Connection, experiment: Experiment) -> None:
    """With its attempts."""
    await connection.execute(DELETE_EXPERIMENTS, experiment.task_id, experiment.experiment_id)


async def find(connection: Connection, experiment_id: UUID) -> Experiment | None:
    return await select_one(connection, Experiment, SELECT_EXPERIMENT, experiment_id)


async def unfinished(connection: Connection, task_id: UUID) -> list[Experiment]:
    """In order of expansion."""
    return await select_all(connection, Experiment, SELECT_UNFINISHED, task_id)


async def pending(
    connection: Connection, task_id: UUID, limit: int, failed_before: datetime
) -> list[Experiment]:
    """The next to start; one that has failed since `failed_before` is not among them."""
    return await select_all(connection, Experiment, SELECT_PENDING, task_id, limit, failed_before)


async def page(
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


async def place_of(connection: Connection, experiment_id: UUID) -> ExperimentPlace | None:
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


async def waiting(connection: Connection, limit: int) -> list[tuple[Experiment, Attempt]]:
    """Those that wait for GPUs, of the highest priority and longest first."""
    rows = await connection.fetch(SELECT_WAITING, limit)
    return [
        (from_json(row["experiment"], Experiment), from_json(row["attempt"], Attempt))
        for row in rows
    ]


async def uncompared(connection: Connection, task_id: UUID) -> list[Experiment]:
    """Those with answers whose agreement with the baseline's is not known yet, in order."""
    return await select_all(connection, Experiment, SELECT_UNCOMPARED, task_id)


async def baseline(connection: Connection, task_id: UUID) -> Experiment | None:
    """The experiment that answers of the task are compared with; it may not have ended."""
    return await select_one(connection, Experiment, SELECT_BASELINE, task_id)
