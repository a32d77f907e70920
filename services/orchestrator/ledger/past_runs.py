"""How long experiments of the same engine and model have held their GPUs, and how much memory of
them they had in use.
"""

from typing import Any, Final

from msgspec.structs import replace

from schemas.executor.attempts import EngineSpec
from schemas.gpus.gpu_request import GpuRequest
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.lifecycle.deadlines import PastHolds
from services.orchestrator.domain.lifecycle.past_memory import (
    LearnedMemory,
    PastRun,
    estimated_mb,
    is_learned,
    learned_note,
    with_memory,
)
from services.orchestrator.domain.plan.plan import Plan
from services.orchestrator.domain.records import Experiment
from shared.postgres.database import Connection, from_json, to_json

NEWEST: Final = 20  # of each kind
NEWEST_PEAKS: Final = 200

# Of attempts that succeeded, those of the same model, engine, GPUs and share of the requests;
# `same`: with the same parameters too.
SELECT_PAST: Final = """
WITH past AS (
    SELECT (e.record -> 'engine' -> 'parameters')::jsonb = $4::jsonb AS same, a.closed_at,
        extract(epoch FROM a.closed_at - (a.record ->> 'started_at')::timestamptz)::float8
            AS seconds
    FROM experiment e JOIN attempt a USING (experiment_id)
    WHERE e.record -> 'engine' ->> 'model' = $1 AND e.record -> 'engine' ->> 'engine' = $2
        AND json_array_length(a.record -> 'devices') = $3
        AND a.outcome = 'succeeded' AND a.closed_at IS NOT NULL
        AND coalesce((e.record #>> '{run,request_divisor}')::int, 1) = $6),
numbered AS (
    SELECT past.*, row_number() OVER (PARTITION BY same ORDER BY closed_at DESC) AS place
    FROM past WHERE seconds > 0)
SELECT same, seconds FROM numbered WHERE place <= $5
"""

# The same of one GPU's memory, for all parameters. A part of a GPU is no measure of a whole one.
SELECT_PEAKS: Final = """
SELECT e.record -> 'engine' -> 'parameters' AS parameters,
    a.record #>> '{devices,0,name}' AS gpu_model,
    (a.record #>> '{devices,0,memory_total_mb}')::int AS memory_total_mb,
    (a.record ->> 'peak_memory_mb')::int AS peak_memory_mb
FROM experiment e JOIN attempt a USING (experiment_id)
WHERE e.record -> 'engine' ->> 'model' = $1 AND e.record -> 'engine' ->> 'engine' = $2
    AND json_array_length(a.record -> 'devices') = $3
    AND a.outcome = 'succeeded' AND a.record ->> 'peak_memory_mb' IS NOT NULL
    AND a.record #>> '{devices,0,memory_total_mb}' IS NOT NULL
    AND a.record #>> '{devices,0,share}' IS NULL
ORDER BY a.closed_at DESC LIMIT $4
"""


async def past_holds(connection: Connection, experiment: Experiment) -> PastHolds:
    """Newest holds of experiments like this one, in seconds."""
    engine, request = experiment.engine, experiment.request
    rows = await connection.fetch(
        SELECT_PAST,
        engine.model,
        engine.engine,
        request.gpus * request.nodes,
        to_json(engine.parameters),
        NEWEST,
        experiment.run.request_divisor,
    )
    return PastHolds(
        same=tuple(row["seconds"] for row in rows if row["same"]),
        alike=tuple(row["seconds"] for row in rows),
    )


async def past_peaks(
    connection: Connection, engine: EngineSpec, request: GpuRequest
) -> list[PastRun]:
    """Newest runs of this engine and model on as many GPUs, whatever their parameters."""
    rows = await connection.fetch(
        SELECT_PEAKS, engine.model, engine.engine, request.gpus * request.nodes, NEWEST_PEAKS
    )
    return [
        PastRun(**{**row, "parameters": from_json(row["parameters"], dict[str, Any])})
        for row in rows
    ]


async def with_memory_learned(
    connection: Connection, task: TaskFile, plan: Plan, largest_mb: int | None = None
) -> Plan:
    """The plan with the memory that its experiments would request now."""
    past: dict[int, list[PastRun]] = {}
    experiments, notes = [], list(plan.notes)
    learned: list[LearnedMemory] = []
    for each in plan.experiments:
        gpus = each.request.gpus * each.request.nodes
        if gpus not in past and is_learned(each.request, task.gpus):
            past[gpus] = await past_peaks(connection, each.engine, each.request)
        asking, found = with_memory(each, task.gpus, past.get(gpus, ()), largest_mb)
        experiments.append(asking)
        learned += [found] if found is not None else []
    if learned:
        notes.append(learned_note(learned, max(estimated_mb(each) for each in plan.experiments)))
    return replace(plan, experiments=tuple(experiments), notes=tuple(notes))
