"""Answers of a task's experiments against those of its first."""

from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.slo import SloVerdict
from services.orchestrator.domain.plan.quality import quality_probe
from services.orchestrator.domain.records import Task
from services.orchestrator.ledger import experiment_rows
from services.orchestrator.ledger.decision_writer import write_rows
from shared.benchmarks.quality.agreement import compare
from shared.postgres.database import Connection


async def compare_answers(connection: Connection, task: Task) -> bool:
    """Store the verdict of each that has answers, once the baseline has its own; return whether
    there are any.
    """
    probe = quality_probe(task.file)
    if probe is None:
        return False
    baseline, uncompared = await experiment_rows.to_compare(connection, task.task_id)
    if (
        baseline is None
        or baseline.state is not ExperimentState.SUCCEEDED
        or baseline.answers is None
    ):
        return False
    compared = []
    for experiment in uncompared:
        if experiment.answers is not None:
            verdict = compare(baseline.ordinal, baseline.answers, experiment.answers, probe)
            slo = replace(experiment.slo or SloVerdict(), quality=verdict)
            compared.append(replace(experiment, slo=slo))
    await write_rows(connection, experiments=compared)
    return bool(compared)
