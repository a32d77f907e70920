"""How long experiments of the same engine and model have held their GPUs, and how much memory of
them they had in use.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.executor.attempts import EngineSpec
from schemas.gpus.gpu_request import GpuRequest
from schemas.task.task_file import GpuPreferences
from services.orchestrator.domain.lifecycle.deadlines import PastHolds
from services.orchestrator.domain.lifecycle.past_memory import (
    LearnedMemory,
    PastRun,
    estimate_request_mb,
    is_learned,
    note_learned_memory,
    with_memory,
)
from services.orchestrator.domain.plan.plan import Plan
from services.orchestrator.domain.progress.requests import PastFacts, learns_memory
from services.orchestrator.domain.records import Experiment
from shared.postgres.database import Connection, from_json, to_json

NEWEST: Final = 20  # of each kind
NEWEST_PEAKS: Final = 200

# For each of several experiments, of attempts that succeeded, those of the same model, engine, GPUs
# and share of the requests; `same`: with the same parameters too.
SELECT_PAST: Final = """
SELECT asked.place, past.same, past.seconds
FROM unnest($1::text[], $2::text[], $3::int[], $4::json[], $5::int[]) WITH ORDINALITY
    AS asked (model, engine, gpus, parameters, divisor, place)
CROSS JOIN LATERAL (
    SELECT same, seconds, row_number() OVER (PARTITION BY same ORDER BY closed_at DESC) AS newest
    FROM (
        SELECT (e.record -> 'engine' -> 'parameters')::jsonb = asked.parameters::jsonb AS same,
            a.closed_at,
            extract(epoch FROM a.closed_at - (a.record ->> 'started_at')::timestamptz)::float8
                AS seconds
        FROM experiment e JOIN attempt a USING (experiment_id)
        WHERE e.record -> 'engine' ->> 'model' = asked.model
            AND e.record -> 'engine' ->> 'engine' = asked.engine
            AND json_array_length(a.record -> 'devices') = asked.gpus
            AND a.outcome = 'succeeded' AND a.closed_at IS NOT NULL
            AND coalesce((e.record #>> '{run,request_divisor}')::int, 1) = asked.divisor) alike
    WHERE seconds > 0) past
WHERE past.newest <= $6
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


async def load_facts(
    connection: Connection,
    preferences: GpuPreferences | None,
    experiments: Sequence[Experiment],
) -> list[PastFacts]:
    """Return what past experiments like these of one task needed, in their order."""
    if not experiments:
        return []
    holds = await _past_holds(connection, experiments)
    peaks: dict[tuple[str, str, int], list[PastRun]] = {}
    facts = []
    for experiment, own_holds in zip(experiments, holds, strict=True):
        engine, request = experiment.engine, experiment.request
        key = (engine.model, engine.engine, request.gpus * request.nodes)
        is_learned = learns_memory(preferences, experiment)
        if is_learned and key not in peaks:
            peaks[key] = await past_peaks(connection, engine, request)
        own_peaks = tuple(peaks[key]) if is_learned else ()
        facts.append(PastFacts(holds=own_holds, peaks=own_peaks))
    return facts


async def _past_holds(connection: Connection, experiments: Sequence[Experiment]) -> list[PastHolds]:
    """Return the newest holds of experiments like each of these, in seconds."""
    requests = [experiment.request for experiment in experiments]
    rows = await connection.fetch(
        SELECT_PAST,
        [experiment.engine.model for experiment in experiments],
        [experiment.engine.engine for experiment in experiments],
        [request.gpus * request.nodes for request in requests],
        [to_json(experiment.engine.parameters) for experiment in experiments],
        [experiment.run.request_divisor for experiment in experiments],
        NEWEST,
    )
    return [
        PastHolds(
            same_seconds=tuple(
                row["seconds"] for row in rows if row["place"] == place and row["same"]
            ),
            similar_seconds=tuple(row["seconds"] for row in rows if row["place"] == place),
        )
        for place in range(1, len(experiments) + 1)
    ]


async def past_peaks(
    connection: Connection, engine: EngineSpec, request: GpuRequest
) -> list[PastRun]:
    """Return the newest runs of this engine and model on as many GPUs, whatever their
    parameters.
    """
    rows = await connection.fetch(
        SELECT_PEAKS, engine.model, engine.engine, request.gpus * request.nodes, NEWEST_PEAKS
    )
    return [
        PastRun(**{**row, "parameters": from_json(row["parameters"], dict[str, Any])})
        for row in rows
    ]


async def with_memory_learned(
    connection: Connection,
    preferences: GpuPreferences | None,
    plan: Plan,
    largest_mb: int | None = None,
) -> Plan:
    """The plan with the memory that its experiments would request now."""
    past: dict[tuple[str, str, int], list[PastRun]] = {}
    experiments, notes = [], list(plan.notes)
    learned: list[LearnedMemory] = []
    for experiment in plan.experiments:
        engine, request = experiment.engine, experiment.request
        key = (engine.model, engine.engine, request.gpus * request.nodes)
        if key not in past and is_learned(request, preferences):
            past[key] = await past_peaks(connection, engine, request)
        asking, memory = with_memory(experiment, preferences, past.get(key, ()), largest_mb)
        experiments.append(asking)
        learned += [memory] if memory is not None else []
    if learned:
        notes.append(
            note_learned_memory(
                learned,
                max(estimate_request_mb(experiment) for experiment in plan.experiments),
            )
        )
    return replace(plan, experiments=tuple(experiments), notes=tuple(notes))
