"""A task on each GPU model by itself, and the table of what each came to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from schemas.errors import ErrorCode
from schemas.orchestrator.views import ExperimentView, TaskView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, settings_text
from services.cli.display.tables import short
from services.cli.display.task_outcome import best_of
from services.cli.failures import CommandFailed
from shared.benchmarks.verdicts.ranking import MEASURES
from shared.gpu.model_names import matches_model, model_of_instance

NOT_COMPARED: Final = (
    "each is the best of its GPU model; GPUs of different models are not ranked against each other"
)
_MAX_NAME_LENGTH: Final = 128
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9]+")


class ModelStudy(NamedTuple):
    """A finished task that was kept to one GPU model."""

    model: str
    task: TaskView
    experiments: Sequence[ExperimentView]


def documents_by_model(document: bytes, gpu_names: Iterable[str]) -> dict[str, bytes]:
    """Return the task once for each model that its `gpus.models` names, else for each of the fleet.

    Its name then ends in the model's. Raises CommandFailed where there is no model.
    """
    task: dict[str, Any] = msgspec.json.decode(document)
    gpus = task.get("gpus") or {}
    if not isinstance(gpus, dict):
        return {"": document}  # refused as it is
    model_names = gpus.get("models")
    models = (
        model_names
        if isinstance(model_names, list) and model_names
        else sorted({model_of_instance(name) for name in gpu_names})
    )
    if not models:
        raise CommandFailed(
            ErrorCode.UNSUPPORTED,
            "expected GPUs in the fleet, or models under gpus.models of the task; there are none",
        )
    return {
        str(model): msgspec.json.encode(
            {
                **task,
                "task_name": _name_on(task.get("task_name"), str(model)),
                "gpus": {**gpus, "models": [model], **_without_longer(gpus, str(model), models)},
            }
        )
        for model in models
    }


def _without_longer(
    gpus: Mapping[str, Any], model: str, models: Iterable[object]
) -> Mapping[str, Any]:
    """Return what keeps a task on an L4 off an L40S: a name stands for all that contain it."""
    longer = [str(other) for other in models if matches_model(str(other), [model])]
    longer.remove(model)
    required = gpus.get("require", [])
    if not longer or not isinstance(required, list):
        return {}
    return {"require": [*required, {"key": "gpu_model", "operator": "not_in", "values": longer}]}


def studies_table(studies: Sequence[ModelStudy]) -> Table:
    """Return a row for each model, with the best that was found on it; none is ranked."""
    objective = studies[0].task.objective
    measure = MEASURES[objective]
    headings = ["GPU model", "state", "experiments", "best", measure, "energy Wh", "task"]
    return Table(
        headings,
        [_row(study) for study in studies],
        title=f"one study for each GPU model, by {objective.value}",
        numeric=frozenset({"experiments", measure, "energy Wh"}),
        important=("GPU model", "best", measure, "state", "task", "experiments", "energy Wh"),
        cut_last=frozenset({"best"}),
    )


def _row(study: ModelStudy) -> list[str]:
    task = study.task
    best = best_of(task, study.experiments)
    monitoring = best.gpu_monitoring if best is not None else None
    return [
        study.model,
        task.state.value,
        str(len(study.experiments)),
        settings_text(best.parameters) if best is not None else UNKNOWN,
        number(_score_of(best, task) if best is not None else None, 4),
        number(monitoring.energy_wh if monitoring is not None else None, 3),
        short(task.task_id),
    ]


def _score_of(best: ExperimentView, task: TaskView) -> float | None:
    """Return the mean of its runs where the task has repeated them, as its own table does."""
    standings = task.trust.standings if task.trust is not None else {}
    standing = standings.get(best.ordinal)
    return standing.mean_score if standing is not None else best.objective_score


def _name_on(task_name: object, model: str) -> object:
    """Return the name with the model's behind it, in letters that names have."""
    if not isinstance(task_name, str):
        return task_name  # refused as it is
    ending = _NO_NAME.sub("-", model).strip("-").lower()
    return f"{task_name[: _MAX_NAME_LENGTH - 1 - len(ending)]}-{ending}"
