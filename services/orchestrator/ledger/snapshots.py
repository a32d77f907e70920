"""What is stored of a task that is to go on, in few statements, under its lock."""

import json
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from services.orchestrator.domain.lifecycle.budget import SPENT
from services.orchestrator.domain.progress.snapshot import TaskSnapshot
from services.orchestrator.domain.records import Attempt, Experiment, Task
from services.orchestrator.ledger import search_history
from services.orchestrator.node_names import with_node_ids
from shared.postgres.database import Connection, from_json

# What may start next: not what has failed since $3. `gpu_model` is of few tasks.
SELECT_SNAPSHOT: Final = """
WITH open AS (SELECT count(*) AS n FROM attempt WHERE task_id = $1 AND closed_at IS NULL)
SELECT open.n AS open_attempts,
    (SELECT json_object_agg(state, n) FROM (
        SELECT state, count(*) AS n FROM experiment WHERE task_id = $1 GROUP BY state) tally)
        AS tally,
    ARRAY(
        SELECT record FROM experiment
        WHERE task_id = $1 AND state = 'pending' AND NOT EXISTS (
            SELECT FROM attempt WHERE attempt.experiment_id = experiment.experiment_id
              AND outcome = 'failed' AND closed_at > $3)
        ORDER BY ordinal LIMIT greatest(0, $2 - open.n)) AS pending,
    CASE WHEN $4 THEN (
        SELECT record #>> '{devices,0,name}' FROM attempt
        WHERE task_id = $1 AND record #>> '{devices,0,name}' IS NOT NULL
        ORDER BY requested_at LIMIT 1) END AS gpu_model,
    ARRAY(
        SELECT record FROM attempt WHERE $5 AND task_id = $1 AND record ->> 'kept_until' IS NOT NULL
        ORDER BY requested_at) AS left_engines
FROM open
"""


async def load_snapshot(
    connection: Connection,
    task: Task,
    now: datetime,
    retry_pause: timedelta,
    *,
    is_best_open: bool = False,
) -> TaskSnapshot:
    """Return the snapshot of a locked task. `is_best_open`: another run may be its best now."""
    spec = task.file.optimization
    [row] = await connection.fetch(
        SELECT_SNAPSHOT,
        task.task_id,
        spec.max_parallel if task.may_start_experiments else 0,
        now - retry_pause,
        task.warm is not None,
        spec.keep_engine and spec.is_trust_asked,
    )
    tally = json.loads(row["tally"] or "{}")
    snapshot = TaskSnapshot(
        task=task,
        file=replace(task.file, gpus=with_node_ids(task.file.gpus)),
        tally={ExperimentState(state): count for state, count in tally.items()},
        open_attempts=row["open_attempts"],
        pending=tuple(from_json(record, Experiment) for record in row["pending"]),
        gpu_model=row["gpu_model"],
        left_attempts=tuple(from_json(record, Attempt) for record in row["left_engines"]),
    )
    if task.may_start_experiments and _is_bounded(task):
        holds = await search_history.sum_held_gpus(connection, task.task_id, now)
        snapshot = replace(snapshot, holds=tuple(holds))
    if is_best_open or _needs_history(snapshot):
        history = await search_history.load_history(connection, task.task_id, spec.goals)
        snapshot = replace(snapshot, history=tuple(history))
    return snapshot


def _is_bounded(task: Task) -> bool:
    spec = task.file.optimization
    has_budget = spec.max_gpu_hours is not None or spec.max_cost is not None
    return has_budget and task.stop_reason not in SPENT


def _needs_history(snapshot: TaskSnapshot) -> bool:
    """Return whether the task may propose, check, end or lose one of its engines."""
    task = snapshot.task
    may_lose_any = bool(task.file.engines) and snapshot.tally.get(ExperimentState.FAILED, 0) > 0
    may_propose = task.may_start_experiments and task.may_propose
    return (
        snapshot.unfinished == 0 or may_lose_any or (may_propose and snapshot.has_room_to_propose)
    )
