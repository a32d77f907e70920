"""What finished experiments measured of what AIConfigurator had predicted, newest first."""

from typing import Final

from schemas.task.objectives import Objective
from services.orchestrator.domain.search.forecast import SYSTEMS
from shared.gpu.gpu_speeds import speed_of
from shared.postgres.database import Connection

NEWEST: Final = 50

# The prediction as the tool gave it: without what its task corrected it by. A score with a penalty
# of a missed SLO is none that was predicted.
SELECT_SCORES: Final = """
SELECT (e.record ->> 'predicted_score')::float8 / coalesce(
           (t.record #>> ARRAY['prior', 'forecasts', 'corrections', $3, 'ratio'])::float8, 1)
           AS predicted,
       e.objective_score AS measured, a.gpu_model
FROM experiment e JOIN task t USING (task_id) CROSS JOIN LATERAL (
    SELECT record #>> '{devices,0,name}' AS gpu_model FROM attempt
    WHERE attempt.experiment_id = e.experiment_id AND outcome = 'succeeded'
    ORDER BY requested_at DESC LIMIT 1) a
WHERE t.namespace = $1 AND t.record #>> '{prior,forecasts,system}' = $4
  AND e.record -> 'engine' ->> 'model' = $2 AND e.record -> 'engine' ->> 'engine' = $3
  AND e.state = 'succeeded' AND e.objective_score > 0
  AND (e.record ->> 'predicted_score')::float8 > 0
  AND coalesce(e.record #>> '{run,role}', 'search') = 'search'
  AND coalesce(e.record #>> '{run,contaminated}', '[]') = '[]'
  AND t.record #>> '{file,slo}' IS NULL
  AND coalesce(t.record #>> '{file,optimization,objective}', 'minimize_latency') = $5
ORDER BY t.created_at DESC, e.ordinal DESC LIMIT $6
"""


async def past_scores(
    connection: Connection,
    namespace: str,
    model: str,
    engine: str,
    system: str,
    objective: Objective,
) -> list[tuple[float, float]]:
    """Return predicted and measured scores of a model and engine on one kind of GPU."""
    rows = await connection.fetch(
        SELECT_SCORES, namespace, model, engine, system, objective.value, NEWEST
    )
    return [
        (row["predicted"], row["measured"])
        for row in rows
        # A task may have run on other GPUs than it was predicted for.
        if (speed := speed_of(row["gpu_model"] or "")) is not None
        and SYSTEMS.get(speed.model) == system
    ]
