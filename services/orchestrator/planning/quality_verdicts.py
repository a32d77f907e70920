"""Answers of a task's experiments against those of its first."""

from typing import Final

from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.slo import SloVerdict
from services.orchestrator.domain.plan.quality import quality_probe
from services.orchestrator.domain.records import Experiment, Task
from services.orchestrator.ledger import store
from shared.benchmarks.quality.agreement import compare
from shared.postgres.database import Connection, from_json

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


async def compare_answers(connection: Connection, task: Task) -> None:
    """Store the verdict of each that has answers, once the baseline has its own."""
    probe = quality_probe(task.file)
    if probe is None:
        return
    rows = await connection.fetch(SELECT_UNCOMPARED, task.task_id)
    first = await connection.fetchval(SELECT_BASELINE, task.task_id) if rows else None
    if first is None:
        return
    baseline = from_json(first, Experiment)
    if baseline.state is not ExperimentState.SUCCEEDED or baseline.answers is None:
        return
    compared = []
    for row in rows:
        experiment = from_json(row["record"], Experiment)
        if experiment.answers is not None:
            verdict = compare(baseline.ordinal, baseline.answers, experiment.answers, probe)
            slo = replace(experiment.slo or SloVerdict(), quality=verdict)
            compared.append(replace(experiment, slo=slo))
    await store.save_experiments(connection, compared)
