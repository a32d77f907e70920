"""How long experiments of the same engine and model have held their GPUs."""

from typing import Final

from services.orchestrator.domain.deadlines import PastHolds
from services.orchestrator.domain.records import Experiment
from shared.postgres.database import Connection, to_json

NEWEST: Final = 20  # of each kind

# Of attempts that succeeded, those of the same model, engine and GPUs; `same`: with the same
# parameters too.
SELECT_PAST: Final = """
WITH past AS (
    SELECT (e.record -> 'engine' -> 'parameters')::jsonb = $4::jsonb AS same, a.closed_at,
        extract(epoch FROM a.closed_at - (a.record ->> 'started_at')::timestamptz)::float8
            AS seconds
    FROM experiment e JOIN attempt a USING (experiment_id)
    WHERE e.record -> 'engine' ->> 'model' = $1 AND e.record -> 'engine' ->> 'engine' = $2
        AND json_array_length(a.record -> 'devices') = $3
        AND a.outcome = 'succeeded' AND a.closed_at IS NOT NULL),
numbered AS (
    SELECT past.*, row_number() OVER (PARTITION BY same ORDER BY closed_at DESC) AS place
    FROM past WHERE seconds > 0)
SELECT same, seconds FROM numbered WHERE place <= $5
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
    )
    return PastHolds(
        same=tuple(row["seconds"] for row in rows if row["same"]),
        alike=tuple(row["seconds"] for row in rows),
    )
