"""What past tasks measured of the same, for a search to begin with."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.task.benchmark import FailedLevel
from schemas.task.slo import SloVerdict
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.executor_offers import Offer
from services.orchestrator.domain.plan.plan import make_planner
from services.orchestrator.domain.search.warm import WarmStart, WarmTrial, is_warmed
from services.orchestrator.node_names import with_node_ids
from shared.benchmarks.verdicts.constraints import excess_of
from shared.errors import RefusedError
from shared.postgres.database import Connection, from_json, to_json

NEWEST: Final = 200

# Of the namespace's tasks that measured the same model and engine in the same way and with the same
# tool, which `auto` does not tell, what counted.
SELECT_PAST: Final = """
SELECT e.experiment_id, e.objective_score AS score, e.record -> 'parameters' AS parameters,
    e.record #> '{metrics,failed_levels}' AS failed_levels,
    coalesce(e.record ->> 'slo', '{}') AS slo, a.gpu_model
FROM experiment e JOIN task t USING (task_id) CROSS JOIN LATERAL (
    SELECT record #>> '{devices,0,name}' AS gpu_model FROM attempt
    WHERE attempt.experiment_id = e.experiment_id AND outcome = 'succeeded'
    ORDER BY requested_at DESC LIMIT 1) a
WHERE t.namespace = $1
    AND e.record -> 'engine' ->> 'model' = $2 AND e.record -> 'engine' ->> 'engine' = $3
    AND e.state = 'succeeded' AND e.objective_score IS NOT NULL AND a.gpu_model IS NOT NULL
    AND coalesce(e.record #>> '{run,role}', 'search') = 'search'
    AND coalesce(e.record #>> '{run,contaminated}', '[]') = '[]'
    AND coalesce(t.record #> '{file,benchmark}', '{}')::jsonb = $4::jsonb
    AND t.record ->> 'benchmark_tool' = $9
    AND coalesce(t.record #> '{file,slo}', 'null')::jsonb = $5::jsonb
    AND coalesce(t.record #>> '{file,optimization,objective}', 'minimize_latency') = $6
    AND coalesce(t.record #>> '{file,optimization,constraints}', '') = $7
ORDER BY t.created_at DESC, e.ordinal LIMIT $8
"""

SELECT_GPU_MODEL: Final = """
SELECT record #>> '{devices,0,name}' FROM attempt
WHERE task_id = $1 AND record #>> '{devices,0,name}' IS NOT NULL ORDER BY requested_at LIMIT 1
"""


async def warm_start(
    connection: Connection, namespace: str, task: TaskFile, offers: Sequence[Offer]
) -> tuple[WarmStart | None, tuple[str, ...]]:
    """With notes. Raises RefusedError where the search could make nothing of it."""
    if not task.optimization.warm_start:
        return None, ()
    if not is_warmed(task.optimization):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected warm_start with strategy 'bayesian' or 'auto' and one objective",
            path="$.optimization.warm_start",
        )
    planner = make_planner(with_node_ids(task), offers)
    rows = await connection.fetch(
        SELECT_PAST,
        namespace,
        task.model.id_or_path,
        planner.engine,
        to_json(task.benchmark),
        to_json(task.slo),
        task.optimization.objective.value,
        task.optimization.constraints,
        NEWEST,
        planner.choice.tool,
    )
    wanted = [part.casefold() for part in (task.gpus.models if task.gpus is not None else ())]
    fitting = [
        row
        for row in rows
        if not wanted or any(part in row["gpu_model"].casefold() for part in wanted)
    ]
    if not fitting:
        return None, ("warm_start: no past experiment measured the same",)
    [(gpu_model, count)] = Counter(row["gpu_model"] for row in fitting).most_common(1)
    trials = tuple(_trial(row) for row in fitting if row["gpu_model"] == gpu_model)
    note = f"warm_start: {count} past experiments on {gpu_model}, which are not counted as measured"
    return WarmStart(gpu_model=gpu_model, trials=trials), (note,)


async def is_on_its_gpu(connection: Connection, task_id: UUID, found: WarmStart) -> bool:
    """Whether the task runs on the GPU model that was measured, or has not begun to run."""
    own = await connection.fetchval(SELECT_GPU_MODEL, task_id)
    return own in {None, found.gpu_model}


def _trial(row: Any) -> WarmTrial:
    return WarmTrial(
        experiment_id=row["experiment_id"],
        parameters=from_json(row["parameters"], dict[str, Any]),
        score=row["score"],
        failed_levels=from_json(row["failed_levels"] or "[]", tuple[FailedLevel, ...]),
        excess=excess_of(from_json(row["slo"], SloVerdict)),
    )
