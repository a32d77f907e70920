"""A task with the parameters of the presets that it names."""

from schemas.errors import ErrorCode
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.plan.planner import find_workload
from services.orchestrator.domain.presets.merge import with_parameters_of
from services.orchestrator.ledger import preset_rows
from shared.errors import RefusedError
from shared.postgres.database import Connection


async def take_presets(
    connection: Connection, namespace: str, task: TaskFile, installation: Installation
) -> tuple[TaskFile, tuple[str, ...]]:
    """Return the task with the parameters of its presets in their place, and notes.

    Raises RefusedError, also for presets of another engine than the task's.
    """
    path = "$.presets"
    presets = await preset_rows.merge_saved(
        connection, namespace, task.presets, task.preset_merge, path
    )
    if presets.engine is not None:
        engine = find_workload(task, installation).engine
        if presets.engine != engine:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected presets of {engine}, the task's engine, got some of {presets.engine}",
                path=path,
            )
    changed, notes = with_parameters_of(task, presets)
    return changed, tuple(notes)
