"""The best measured experiments of a model, over all tasks."""

from typing import Final

from msgspec import Struct

from schemas.orchestrator.leaders import ListLeaders, MeasuredModel
from services.orchestrator.domain.records import Experiment, Task
from shared.postgres.database import Connection, from_json

MOST_MODELS: Final = 500

# An objective that a file does not name is the first of several, or the usual one ($2).
SELECT_MODELS: Final = """
SELECT record -> 'engine' ->> 'model' AS model, count(*) AS experiments,
    array_agg(DISTINCT objective) AS objectives,
    max((record ->> 'finished_at')::timestamptz) AS measured_at
FROM (
    SELECT experiment.record, coalesce(
        task.record #>> '{file,optimization,objectives,0}',
        task.record #>> '{file,optimization,objective}', $2) AS objective
    FROM experiment JOIN task USING (task_id)
    WHERE experiment.state = 'succeeded' AND objective_score IS NOT NULL
        AND experiment.record ->> 'finished_at' IS NOT NULL
        AND ($1::text IS NULL OR namespace = $1)) measured
GROUP BY 1 ORDER BY measured_at DESC LIMIT $3
"""

# Runs with fewer requests than asked for are no measure. What a benchmark limits is no load.
SELECT_LEADERS: Final = """
SELECT record, task_record, experiments FROM (
    SELECT record, task_record, objective_score, misses,
        count(*) OVER same AS experiments,
        row_number() OVER (same ORDER BY misses, is_contaminated,
            objective_score * $4::int, ordinal) AS place
    FROM (
        SELECT experiment.record, task.record AS task_record, objective_score, ordinal,
            coalesce(experiment.record #>> '{slo,failed_because}', '') <> '' OR EXISTS (
                SELECT FROM json_array_elements(experiment.record #> '{slo,constraints}') AS bound
                WHERE coalesce((bound ->> 'excess')::float8, 1) > 0) AS misses,
            json_array_length(coalesce(experiment.record #> '{run,contaminated}', '[]')) > 0
                AS is_contaminated,
            experiment.record #>> '{engine,engine}' AS engine,
            experiment.record #>> '{engine,image_tag}' AS version,
            experiment.record #>> '{run,image_digest}' AS digest,
            experiment.record #>> '{run,setting,gpu_models}' AS gpu_models,
            coalesce((experiment.record #>> '{request,gpus}')::int, 1)
                * coalesce((experiment.record #>> '{request,nodes}')::int, 1) AS gpus,
            (task.record #> '{file,benchmark}')::jsonb - ARRAY['max_time_per_iteration',
                'max_requests_per_iteration', 'warmup_requests', 'quality', 'model_name',
                'model_tokenizer', 'additional_params'] AS load
        FROM experiment JOIN task USING (task_id)
        WHERE experiment.record -> 'engine' ->> 'model' = $1
            AND experiment.state = 'succeeded' AND objective_score IS NOT NULL
            AND coalesce(task.record #>> '{file,optimization,objectives,0}',
                task.record #>> '{file,optimization,objective}', $5) = $2
            AND coalesce((experiment.record #>> '{run,request_divisor}')::int, 1) = 1
            AND ($3::text IS NULL OR namespace = $3)) measured
    WINDOW same AS (PARTITION BY engine, version, digest, gpu_models, gpus, load)) placed
WHERE place = 1 ORDER BY misses, objective_score * $4::int LIMIT $6
"""


class BestRun(Struct, frozen=True):
    """The best of `experiments` that differ in their parameters alone, with its task."""

    experiment: Experiment
    task: Task
    experiments: int


async def list_models(
    connection: Connection, namespace: str | None, usual_objective: str
) -> list[MeasuredModel]:
    """Return the models that were measured, the newest first."""
    rows = await connection.fetch(SELECT_MODELS, namespace, usual_objective, MOST_MODELS)
    return [MeasuredModel(**{**row, "objectives": tuple(row["objectives"])}) for row in rows]


async def best_runs(
    connection: Connection, query: ListLeaders, usual_objective: str
) -> list[BestRun]:
    """Return the best run of each engine, its version, GPUs and load; the best first."""
    rows = await connection.fetch(
        SELECT_LEADERS,
        query.model,
        query.objective.value,
        query.namespace,
        -1 if query.objective.is_maximized else 1,
        usual_objective,
        query.limit,
    )
    return [
        BestRun(
            from_json(row["record"], Experiment),
            from_json(row["task_record"], Task),
            row["experiments"],
        )
        for row in rows
    ]
