"""A task with the parameters of the presets that it names."""

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.plan.planner import find_workload
from services.orchestrator.domain.presets.merge import with_parameters_of
from services.orchestrator.ledger import preset_rows
from shared.errors import RefusedError
from shared.postgres.database import Connection
from shared.task_files.engines import engine_files


async def take_presets(
    connection: Connection, namespace: str, task: TaskFile, installation: Installation
) -> tuple[TaskFile, tuple[str, ...]]:
    """Return the task with the parameters of its presets in their place, and notes.

    Raises RefusedError, also for presets of another engine than the task's.
    """
    if not task.engines:
        return await _take(connection, namespace, task, installation, "$.presets")
    engines, notes = list(task.engines), []
    for place, source in enumerate(engine_files(task)):
        if source.file.presets:
            path = f"$.engines[{place}].presets"
            file, own_notes = await _take(connection, namespace, source.file, installation, path)
            parameters = {
                name: v for name, v in file.parameters.items() if name not in task.parameters
            }
            engines[place] = replace(engines[place], parameters=parameters, presets=())
            notes += [f"{source.file.base_runtime}: {note}" for note in own_notes]
    return replace(task, engines=tuple(engines)), tuple(notes)


def has_presets(task: TaskFile) -> bool:
    """Return whether the task, or one of its engines, names any."""
    return bool(task.presets) or any(engine.presets for engine in task.engines)


async def _take(
    connection: Connection, namespace: str, task: TaskFile, installation: Installation, path: str
) -> tuple[TaskFile, tuple[str, ...]]:
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
