"""What a task becomes here, whichever of its engines a configuration runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.orchestrator.views import PlannedExperiment
from schemas.task.task_file import DeploymentMode, TaskFile
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.missing import Missing
from services.orchestrator.domain.installation.tools import ToolChoice, choose_for_all
from services.orchestrator.domain.plan.benchmark_plan import choose_wanted_tool
from services.orchestrator.domain.plan.expansion import (
    RowPlaces,
    engine_row,
    first_values,
)
from services.orchestrator.domain.plan.planner import (
    Planner,
    choose_mode,
    find_workload,
    make_planner,
)
from shared.engines.check import check_parameters
from shared.engines.conflicts import Conflict
from shared.engines.variants import IMAGE_TAG, SINGLE, Variant, title_of, variant_of
from shared.errors import Mistakes, RefusedError, rename_paths
from shared.task_files.engines import EngineFile, engine_files


class EnginePlan(Struct, frozen=True, kw_only=True):
    """One engine of a task, in one version."""

    title: str
    source: EngineFile
    planner: Planner


class TaskPlanner(Struct, frozen=True, kw_only=True):
    """A task's engines by what tells them apart; a task with one has that one alone."""

    task: TaskFile
    mode: DeploymentMode
    choice: ToolChoice
    engines: Mapping[Variant, EnginePlan]

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Return what is missing for every engine; empty if any can run."""
        lacks = [engine.planner.missing for engine in self.engines.values()]
        return () if not all(lacks) else tuple(dict.fromkeys(m for lack in lacks for m in lack))

    @property
    def rivals(self) -> int:
        """Return how many engines are compared; 0 where there is one."""
        return len(self.engines) if len(self.engines) > 1 else 0

    @property
    def left_out(self) -> Mapping[Variant, str]:
        """Return the engines that nothing here can run, while others can, and why."""
        if self.missing:
            return {}
        return {
            variant: "; ".join(missing.sentence for missing in engine.planner.missing)
            for variant, engine in self.engines.items()
            if engine.planner.missing
        }

    def plan_experiment(
        self, ordinal: int, point: Point
    ) -> tuple[PlannedExperiment, list[Missing], list[str]]:
        """Return the experiment, what its engine cannot take of it, and notes.

        Raises RefusedError for a bad parameter.
        """
        engine = self.engines[point.variant]
        planned, missing, notes = engine.planner.plan_experiment(ordinal, point)
        prefix = "" if engine.source.place is None else f"{engine.title}: "
        return planned, missing, [f"{prefix}{note}" for note in notes]

    def is_possible(self, point: Point) -> bool:
        """Return whether its engine is here and takes this configuration."""
        engine = self.engines[point.variant]
        return not engine.planner.missing and engine.planner.is_possible(point)

    def find_conflicts(self, point: Point, planned: PlannedExperiment) -> list[Conflict]:
        """Return which flags of a configuration do not go together."""
        return self.engines[point.variant].planner.find_conflicts(planned.engine.parameters)

    def check_first_values(self) -> None:
        """Raise RefusedError for flags that an engine does not take, by one value of each."""
        mistakes = Mistakes()
        for engine in self.engines.values():
            file = engine.source.file
            with mistakes.collect(), rename_paths(partial(engine.source.find_path, self.task)):
                values = first_values(file.configurations, file.parameters)
                check_parameters(engine.planner.workload.engine, engine.planner.rules, values)
        mistakes.refuse()


class PointPlaces:
    """Where in the task's file stands what a refusal of a configuration is about."""

    def __init__(self, planner: TaskPlanner) -> None:
        self._task = planner.task
        self._places = {
            variant: (
                engine.source,
                RowPlaces(engine.source.file.configurations, engine.source.file.parameters),
            )
            for variant, engine in planner.engines.items()
        }

    @contextmanager
    def name_place(self, point: Point) -> Iterator[None]:
        """Have a refusal of the configuration name the engine and the row that it is of."""
        source, rows = self._places[point.variant]
        with rename_paths(partial(source.find_path, self._task)), rows.name_rows(point):
            yield


def make_task_planner(task: TaskFile, installation: Installation) -> TaskPlanner:
    """Raise RefusedError for what no installation could run."""
    mode = choose_mode(task, installation)
    mistakes = Mistakes()
    files: dict[Variant, tuple[str, EngineFile]] = {}
    for source in engine_files(task):
        file = source.file if source.place is None else replace(source.file, deployment_mode=mode)
        _refuse_tags(source, mode, mistakes)
        for tag in source.tags or (file.runtime_image_tag,):
            variant, title = _name(task, source, tag)
            own_file = replace(file, runtime_image_tag=tag)
            files[variant] = title, replace(source, file=own_file)
    servings = []
    for _, source in files.values():
        with mistakes.collect(), rename_paths(partial(source.find_path, task)):
            workload = find_workload(source.file, installation)
            servings.append(installation.find_serving(workload))
    mistakes.refuse()
    choice = choose_for_all(choose_wanted_tool(task.benchmark), servings)
    engines: dict[Variant, EnginePlan] = {}
    for variant, (title, source) in files.items():
        with mistakes.collect(), rename_paths(partial(source.find_path, task)):
            planner = make_planner(source.file, installation, choice)
            engines[variant] = EnginePlan(title=title, source=source, planner=planner)
    mistakes.refuse()
    return TaskPlanner(task=task, mode=mode, choice=choice, engines=engines)


def _name(task: TaskFile, source: EngineFile, tag: str | None) -> tuple[Variant, str]:
    """Return what tells an engine from the others, and the same for people."""
    if source.place is None:
        return SINGLE, source.file.base_runtime
    row = dict(engine_row(task, task.engines[source.place]))
    if tag is not None:
        row[IMAGE_TAG] = tag
    return variant_of(row), title_of(variant_of(row))


def _refuse_tags(source: EngineFile, mode: DeploymentMode, mistakes: Mistakes) -> None:
    """Collect a refusal of tags that could not make a difference."""
    if mode is DeploymentMode.PROCESS and len(source.tags) > 1:
        with mistakes.collect():
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                "expected one tag at most in mode 'process', which starts the program that is"
                f" installed and no image; got {', '.join(source.tags)}",
                path=f"$.engines[{source.place}].runtime_image_tag",
            )
