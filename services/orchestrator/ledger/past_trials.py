"""What past tasks of a namespace measured of the same, newest first."""

from typing import Any, Final

from schemas.task.benchmark import BenchmarkTool, FailedLevel
from schemas.task.slo import SloVerdict
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.search.warm_start import WarmTrial
from shared.benchmarks.verdicts.constraints import excess_of
from shared.postgres.database import Connection, Row, from_json, to_json

NEWEST: Final = 200

# Of the namespace's tasks that measured the same model and engine in the same way and with the same
# tool, which `auto` does not name, what counted.
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
    AND (NOT $10::boolean OR e.record -> 'engine' ->> 'image_tag' IS NOT DISTINCT FROM $11::text)
ORDER BY t.created_at DESC, e.ordinal LIMIT $8
"""


async def past_trials(
    connection: Connection,
    namespace: str,
    task: TaskFile,
    engine: str,
    tool: BenchmarkTool | None,
    *,
    of_tag_alone: bool = False,
) -> list[tuple[str, WarmTrial]]:
    """Return past trials, each with the GPU model that it was measured on.

    `engine` and `tool` are the task's. `of_tag_alone`: those of another tag than the task's are
    another engine's.
    """
    rows = await connection.fetch(
        SELECT_PAST,
        namespace,
        task.model.id_or_path,
        engine,
        to_json(task.benchmark),
        to_json(task.slo),
        task.optimization.objective.value,
        task.optimization.constraints,
        NEWEST,
        tool,
        of_tag_alone,
        task.runtime_image_tag,
    )
    return [(row["gpu_model"], _trial(row)) for row in rows]


def _trial(row: Row) -> WarmTrial:
    return WarmTrial(
        experiment_id=row["experiment_id"],
        parameters=from_json(row["parameters"], dict[str, Any]),
        score=row["score"],
        failed_levels=from_json(row["failed_levels"] or "[]", tuple[FailedLevel, ...]),
        excess=excess_of(from_json(row["slo"], SloVerdict)),
    )
