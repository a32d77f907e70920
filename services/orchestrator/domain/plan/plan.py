"""What a task becomes in this installation, and what the installation lacks for it."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from schemas.base import MAX_INTEGER
from schemas.errors import ErrorCode
from schemas.orchestrator.views import PlannedExperiment
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, StopReason, TaskFile
from services.orchestrator.domain.configurations import Axis
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.installation.missing import Missing
from services.orchestrator.domain.installation.offers import CLUSTER_MODES
from services.orchestrator.domain.plan import objective_check
from services.orchestrator.domain.plan.benchmark_plan import refuse_bad_benchmark
from services.orchestrator.domain.plan.conflicts import Conflicts
from services.orchestrator.domain.plan.endpoint_check import refuse_bad_endpoint
from services.orchestrator.domain.plan.expansion import Grid, expand, find_axes
from services.orchestrator.domain.plan.quality import altering_axes
from services.orchestrator.domain.plan.task_planner import (
    PointPlaces,
    TaskPlanner,
    make_task_planner,
)
from services.orchestrator.domain.search.front_trust import MAX_FRONT_MEMBERS
from services.orchestrator.domain.search.kept_engines import find_obstacle
from services.orchestrator.domain.search.notes import search_notes
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.propose import begin_search
from services.orchestrator.domain.search.search import Search
from services.orchestrator.domain.search.space import Space, space_of
from services.orchestrator.domain.search.trust import MAX_CHECKS
from shared.engines.variants import Variant
from shared.errors import Mistakes, RefusedError

# A tag as image references spell it: docs.docker.com/reference/cli/docker/image/tag
_IMAGE_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class _Expansion(Struct, frozen=True, kw_only=True):
    """The configurations to plan; of a search those that together have every value."""

    axes: tuple[Axis, ...]
    grid: Grid
    search: Search | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """A task's expansion. A search has a `search` instead of experiments, and `samples`: of the
    configurations that together have every value one for each different request.
    """

    planner: TaskPlanner
    experiments: tuple[PlannedExperiment, ...]
    total: int
    cut: int
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    search: Search | None = None
    samples: tuple[PlannedExperiment, ...] = ()

    @property
    def mode(self) -> DeploymentMode:
        return self.planner.mode

    @property
    def benchmark_tool(self) -> BenchmarkTool | None:
        """Return what measures all its experiments; None if no node could run it."""
        return self.planner.choice.tool

    @property
    def experiments_at_most(self) -> int:
        return self.search.experiments if self.search is not None else len(self.experiments)

    @property
    def stop_reason(self) -> StopReason | None:
        """Return why a grid ends, which is known from the start; None: a search finds out."""
        if self.search is not None:
            return None
        return StopReason.MAX_ITERATIONS if self.cut else StopReason.SPACE_EXHAUSTED


def make_plan(task: TaskFile, installation: Installation) -> Plan:
    """Expand the task. Raises RefusedError with everything that no installation could run."""
    mistakes = Mistakes()
    expansion: _Expansion | None = None
    with mistakes.collect():
        check_task(task)
    with mistakes.collect():
        expansion = _expand(task)
    with mistakes.collect():
        return _plan(task, expansion, make_task_planner(task, installation), mistakes)
    raise mistakes.refusal()


def check_task(task: TaskFile) -> None:
    """Raise RefusedError with everything in the task that no installation could run."""
    mistakes = Mistakes()
    with mistakes.collect():
        objective_check.refuse_excessive(task.benchmark)
    with mistakes.collect():
        _refuse_bad_tag(task.runtime_image_tag, "$.runtime_image_tag")
    for place, engine in enumerate(task.engines):
        for number, tag in enumerate(engine.runtime_image_tag):
            with mistakes.collect():
                _refuse_bad_tag(tag, f"$.engines[{place}].runtime_image_tag[{number}]")
    with mistakes.collect():
        refuse_bad_benchmark(task.benchmark, task.optimization)
    with mistakes.collect():
        objective_check.refuse_bad_objectives(task.optimization)
        objective_check.refuse_unmeasured(task)
    with mistakes.collect():
        refuse_bad_endpoint(task)
    mistakes.refuse()


def _refuse_bad_tag(tag: str | None, path: str) -> None:
    if tag is not None and _IMAGE_TAG.fullmatch(tag) is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the tag of an image: at most 128 letters, digits, '_', '.' and '-', the "
            f"first none of the last two; got {tag!r}",
            path=path,
        )


def _expand(task: TaskFile) -> _Expansion:
    """Return every single value of a search: a configuration is checked when it is proposed."""
    axes, spec = find_axes(task), task.optimization
    if not spec.strategy.traits.is_search:
        return _Expansion(axes=axes, grid=expand(axes, spec.max_iterations))
    search = begin_search(spec, space_of(axes))
    return _Expansion(axes=axes, grid=_single_values(search.space), search=search)


def _plan(
    task: TaskFile, expansion: _Expansion | None, planner: TaskPlanner, mistakes: Mistakes
) -> Plan:
    """Raise RefusedError with these mistakes, and those of the configurations.

    `expansion` None: the task spans none, which is among the mistakes.
    """
    if expansion is None:
        planner.check_first_values()  # its flags are checked all the same
        raise mistakes.refusal()
    grid, search = _without(expansion, planner.left_out, task), expansion.search
    places = PointPlaces(planner)
    experiments: list[PlannedExperiment] = []
    missing: dict[Missing, None] = {}
    notes: dict[str, None] = {}
    conflicts = Conflicts()
    for point in grid.points:
        with mistakes.collect(), places.name_place(point):
            ordinal = len(experiments) + 1
            experiment, own_missing, own_notes = planner.plan_experiment(ordinal, point)
            missing |= dict.fromkeys(own_missing)
            notes |= dict.fromkeys(own_notes)
            may_start = conflicts.let_through(planner.find_conflicts(point, experiment))
            if may_start or search is not None:  # a search tries others than these samples
                experiments.append(experiment)
    mistakes.refuse()
    conflicts.refuse_unless(is_any_left=bool(experiments))
    return Plan(
        planner=planner,
        experiments=tuple(experiments) if search is None else (),
        total=grid.total,
        cut=grid.cut,
        missing=(*planner.missing, *missing),
        notes=(
            *_task_notes(task, expansion.axes, grid, planner),
            *search_notes(search),
            *_keeping_notes(task, experiments),
            *conflicts.notes(),
            *notes,
        ),
        search=search,
        samples=_one_for_each_request(experiments) if search is not None else (),
    )


def _without(expansion: _Expansion, left_out: Collection[Variant], task: TaskFile) -> Grid:
    """Return the configurations of those engines that can run here."""
    if not left_out:
        return expansion.grid
    if expansion.search is None:
        return expand(expansion.axes, task.optimization.max_iterations, left_out)
    points = [point for point in expansion.grid.points if point.variant not in left_out]
    return replace(expansion.grid, points=tuple(points))


def make_search(task: TaskFile, default_seed: int = 0, prior: Prior | None = None) -> Search | None:
    """Return the task's search, None for a grid. Raises RefusedError for a bad range."""
    if not task.optimization.strategy.traits.is_search:
        return None
    return begin_search(task.optimization, space_of(find_axes(task)), default_seed, prior)


def _task_notes(
    task: TaskFile, axes: Sequence[Axis], grid: Grid, planner: TaskPlanner
) -> Iterator[str]:
    """Yield what was assumed, cut or left without use."""
    mode = planner.mode
    yield from _engine_notes(task, planner)
    if task.deployment_mode is None:
        yield f"deployment_mode is not given; '{mode.value}' follows from the rest of the task"
    if grid.cut:
        kept = grid.total - grid.cut
        yield f"max_iterations cuts the grid: {kept} of {grid.total} configurations are run"
    search = task.optimization
    is_drawn = search.n_initial_random is not None or search.seed is not None
    if is_drawn and not search.strategy.traits.is_search:
        yield "n_initial_random and seed have no meaning for a grid, which draws nothing"
    yield from objective_check.objective_notes(search)
    yield from objective_check.traffic_notes(task.benchmark)
    if search.is_trust_asked:
        checks = MAX_CHECKS + (MAX_FRONT_MEMBERS if len(search.goals) > 1 else 0) + planner.rivals
        yield (
            f"trust: {checks} further runs, or half as many as there are configurations, may "
            "tell the winner from chance"
        )
    probe = task.benchmark.quality
    has_answers = task.benchmark.modality.has_tokens and (probe is None or not probe.is_off)
    altering = altering_axes(axes) if has_answers else []
    if altering:
        yield (
            f"quality: {', '.join(altering)} may change answers, so each experiment's are compared "
            "with the first one's (benchmark.quality)"
        )
    yield from _mode_notes(task, mode)
    if planner.choice.note:
        yield planner.choice.note


def _keeping_notes(task: TaskFile, experiments: Sequence[PlannedExperiment]) -> Iterator[str]:
    """Yield whether further runs of a configuration may have its running engine, or why not."""
    spec = task.optimization
    if not spec.is_trust_asked or not spec.keep_engine or task.endpoint is not None:
        return
    obstacles = [find_obstacle(planned.engine, planned.request) for planned in experiments]
    yield from (f"keep_engine: {obstacle}" for obstacle in dict.fromkeys(obstacles) if obstacle)
    if "" in obstacles:
        yield (
            "keep_engine: replays, and repeats beyond three starts, are measured on the engine of "
            "the run before them, its state reset"
        )


def _mode_notes(task: TaskFile, mode: DeploymentMode) -> Iterator[str]:
    """Yield what of the task has no use in its mode."""
    if mode is DeploymentMode.ENDPOINT:
        yield (
            "no GPUs are reserved: the servers run already, and each is measured by one experiment "
            "at a time"
        )
    for name in ("cluster", "resource", "resource_amounts") if mode not in CLUSTER_MODES else ():
        if getattr(task.gpus, name, None):
            yield f"gpus.{name} is not used in mode '{mode.value}', which runs in no cluster"


def _engine_notes(task: TaskFile, planner: TaskPlanner) -> Iterator[str]:
    """Yield which engines are not tried, and what of them makes no difference."""
    for variant, reason in planner.left_out.items():
        yield f"{planner.engines[variant].title} is left out: {reason}"
    has_tag = task.runtime_image_tag or any(engine.runtime_image_tag for engine in task.engines)
    if has_tag and planner.mode is DeploymentMode.PROCESS:
        yield "runtime_image_tag is not used in mode 'process', which starts no image"


def refuse_missing(plan: Plan) -> None:
    """Raises RefusedError with everything that is missing; nothing if the task can run here."""
    if plan.missing:
        sentences = [missing.sentence for missing in plan.missing]
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            "; ".join(sentences),
            path=plan.missing[0].path,
            details={"missing": sentences},
        )


def _one_for_each_request(planned: Iterable[PlannedExperiment]) -> tuple[PlannedExperiment, ...]:
    by_request: dict[bytes, PlannedExperiment] = {}
    for experiment in planned:
        by_request.setdefault(json.encode(experiment.request), experiment)
    return tuple(by_request.values())


def _single_values(space: Space) -> Grid:
    size = MAX_INTEGER if space.size is None else min(space.size, MAX_INTEGER)
    return Grid(points=tuple(space.single_values()), total=size, cut=0)
