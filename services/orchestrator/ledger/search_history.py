"""What a task has tried, from its experiments."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from schemas.executor.attempts import FailureKind
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.benchmark import BenchmarkMetrics, FailedLevel
from schemas.task.objectives import Objective
from schemas.task.slo import SloVerdict
from schemas.task.trust import RunInfo
from services.orchestrator.domain.lifecycle.budget import AttemptTimes, HeldGpus
from services.orchestrator.domain.search.history import RunRecord
from shared.benchmarks.verdicts.constraints import excess_of
from shared.benchmarks.verdicts.ranking import Scored, goals_of
from shared.postgres.database import Connection, from_json

SELECT_TRIED: Final = """
SELECT experiment_id, ordinal, state, objective_score, record -> 'parameters' AS parameters,
       record #> '{metrics,failed_levels}' AS failed_levels,
       coalesce(record ->> 'slo', '{}') AS slo,
       record #>> '{failure,kind}' AS failure, record ->> 'reason' AS reason,
       coalesce(record ->> 'run', '{}') AS run,
       CASE WHEN $2 THEN record -> 'metrics' END AS metrics
FROM experiment WHERE task_id = $1 ORDER BY ordinal
"""

# An attempt has its GPUs from its start, and as long as its engine stays up for a further one; of
# shares of a GPU their sum.
SELECT_HELD: Final = """
SELECT models, sum(gpu_seconds)::float8 AS gpu_seconds FROM (
    SELECT extract(epoch FROM coalesce((a.record ->> 'held_until')::timestamptz, a.closed_at, $2)
            - (a.record ->> 'started_at')::timestamptz)
        * coalesce((e.record #>> '{request,shares}')::float8,
                   (a.record #>> '{cluster,gpus}')::float8,
                   json_array_length(a.record -> 'devices')) AS gpu_seconds,
        array(SELECT d ->> 'name' FROM json_array_elements(a.record -> 'devices') d) AS models
    FROM attempt a JOIN experiment e USING (experiment_id)
    WHERE a.task_id = $1 AND a.record ->> 'started_at' IS NOT NULL) held
GROUP BY models
"""


SELECT_TIMES: Final = """
SELECT avg(seconds) FILTER (WHERE outcome = 'succeeded')::float8 AS mean_seconds,
       coalesce(array_agg(seconds::float8) FILTER (WHERE closed_at IS NULL), '{}') AS running
FROM (SELECT closed_at, record ->> 'outcome' AS outcome,
             extract(epoch FROM coalesce(closed_at, $2)
                     - (record ->> 'started_at')::timestamptz) AS seconds
      FROM attempt WHERE task_id = $1 AND record ->> 'started_at' IS NOT NULL) held
"""


async def load_history(
    connection: Connection, task_id: UUID, goals: Sequence[Objective] = ()
) -> list[RunRecord]:
    """Return the runs of a task in order.

    What they are by several `goals` is read where there are several.
    """
    has_goals = len(goals) > 1
    rows = await connection.fetch(SELECT_TRIED, task_id, has_goals)
    return [
        RunRecord(
            ordinal=row["ordinal"],
            state=ExperimentState(row["state"]),
            parameters=from_json(row["parameters"], dict[str, Any]),
            scored=Scored(
                experiment_id=row["experiment_id"],
                ordinal=row["ordinal"],
                score=row["objective_score"],
                failed_levels=from_json(row["failed_levels"] or "[]", tuple[FailedLevel, ...]),
                excess=excess_of(from_json(row["slo"], SloVerdict)),
                goals=goals_of(goals, from_json(row["metrics"] or "{}", BenchmarkMetrics))
                if has_goals
                else (),
            )
            if row["state"] == ExperimentState.SUCCEEDED
            else None,
            failure=FailureKind(row["failure"]) if row["failure"] else None,
            run=from_json(row["run"], RunInfo),
            reason=row["reason"] or "",
        )
        for row in rows
    ]


async def attempt_times(connection: Connection, task_id: UUID, now: datetime) -> AttemptTimes:
    """Return for how long the attempts of a task have had their GPUs."""
    (row,) = await connection.fetch(SELECT_TIMES, task_id, now)
    return AttemptTimes(mean_seconds=row["mean_seconds"], running_seconds=tuple(row["running"]))


async def sum_held_gpus(connection: Connection, task_id: UUID, now: datetime) -> list[HeldGpus]:
    """Sum for how long the attempts of a task have had their GPUs."""
    rows = await connection.fetch(SELECT_HELD, task_id, now)
    return [
        HeldGpus(models=tuple(row["models"]), gpu_seconds=row["gpu_seconds"] or 0.0) for row in rows
    ]
