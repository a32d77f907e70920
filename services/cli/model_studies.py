"""A task on each GPU model by itself, and the table of what each came to."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from schemas.errors import ErrorCode
from schemas.orchestrator.views import ExperimentView, TaskView
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, settings_text
from services.cli.display.tables import short
from services.cli.failures import CommandFailed
from shared.benchmarks.verdicts.ranking import MEASURES

NOT_COMPARED: Final = (
    "each is the best of its GPU model; GPUs of different models are not ranked against each other"
)
_MAX_NAME_LENGTH: Final = 128
_PART_OF_GPU: Final = " MIG "
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
    named = gpus.get("models")
    models = (
        named
        if isinstance(named, list) and named
        else sorted({name.partition(_PART_OF_GPU)[0] for name in gpu_names})
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
                "gpus": {**gpus, "models": [model]},
            }
        )
        for model in models
    }


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
        whole=frozenset({"best"}),
    )


def _row(study: ModelStudy) -> list[str]:
    task = study.task
    best = next((e for e in study.experiments if e.experiment_id == task.best_experiment_id), None)
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
    order = task.trust.order if task.trust is not None else ()
    means = {standing.ordinal: standing.mean_score for standing in order}
    return means.get(best.ordinal, best.objective_score)


def _name_on(task_name: object, model: str) -> object:
    """Return the name with the model's behind it, in letters that names have."""
    if not isinstance(task_name, str):
        return task_name  # refused as it is
    ending = _NO_NAME.sub("-", model).strip("-").lower()
    return f"{task_name[: _MAX_NAME_LENGTH - 1 - len(ending)]}-{ending}"
