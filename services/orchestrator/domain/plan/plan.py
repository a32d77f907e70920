"""What a task becomes in this installation, and what the installation lacks for it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from schemas.base import LARGEST_INTEGER
from schemas.cluster.kubernetes import KubernetesSpec
from schemas.errors import ErrorCode
from schemas.executor.attempts import EngineSpec, Runtime
from schemas.executor.engine_rules import EngineRules
from schemas.executor.model_shape import ModelShape
from schemas.gpus.checks import CudaRules, ResourceDefinition
from schemas.orchestrator.views import MemoryEstimate, PlannedExperiment
from schemas.task.benchmark import BenchmarkTool
from schemas.task.task_file import DeploymentMode, MemorySource, StopReason, Strategy, TaskFile
from services.orchestrator.domain.plan import objective_check
from services.orchestrator.domain.plan.benchmark_plan import refuse_bad_benchmark, wanted_tool
from services.orchestrator.domain.plan.cluster_devices import devices_for, devices_offered
from services.orchestrator.domain.plan.cluster_objects import (
    engine_of_runtime,
    kubernetes_spec,
    serving_runtime,
)
from services.orchestrator.domain.plan.engine_parameters import engine_parameters
from services.orchestrator.domain.plan.engines import engine_of, mode_of
from services.orchestrator.domain.plan.executor_offers import (
    CLUSTER_MODES,
    Offer,
    cuda_offered,
    eligible_nodes,
    engine_rules,
    known_engines,
    precisions_offered,
    refuse_unread,
    serving_offers,
    shape_offered,
)
from services.orchestrator.domain.plan.expansion import (
    POWER_LIMIT,
    SM_CLOCK,
    Grid,
    Point,
    RowPlaces,
    expand,
    first_values,
    search_axes,
)
from services.orchestrator.domain.plan.memory_rule import (
    SIMULATED,
    UNKNOWN_TOKENS,
    estimate_memory,
    tokens_of_request,
)
from services.orchestrator.domain.plan.plan_notes import plan_notes
from services.orchestrator.domain.plan.requirements_check import Missing, missing_nodes
from services.orchestrator.domain.plan.sizing import (
    is_estimated,
    part_of,
    request_for,
    world_size,
)
from services.orchestrator.domain.plan.tools import ToolChoice, choose_tool
from services.orchestrator.domain.presets.blocks import quantization_named, without_presets
from services.orchestrator.domain.search.notes import search_notes
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.propose import Search, search_of
from services.orchestrator.domain.search.space import Space, space_of
from shared.accelerator_rules.cluster_parts import ClusterPart
from shared.accelerator_rules.cuda_versions import CudaVersion
from shared.accelerator_rules.preflight import Preflight, preflight
from shared.engine_parameters.check import check_parameters, takes
from shared.errors import Mistakes, RefusedError
from shared.near_words import did_you_mean

# A tag as image references spell it: docs.docker.com/reference/cli/docker/image/tag
_IMAGE_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Plan(Struct, frozen=True, kw_only=True):
    """A task's expansion. `benchmark_tool` is what all its experiments are measured with; None if
    no node could run it. A search has a `search` instead of experiments, and `samples`: of the
    configurations that together have every value one for each different request.
    """

    mode: DeploymentMode
    benchmark_tool: BenchmarkTool | None
    experiments: tuple[PlannedExperiment, ...]
    total: int
    cut: int
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    search: Search | None = None
    samples: tuple[PlannedExperiment, ...] = ()

    @property
    def experiments_at_most(self) -> int:
        return self.search.experiments if self.search is not None else len(self.experiments)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why a grid ends, which is known from the start; None: a search finds out."""
        if self.search is not None:
            return None
        return StopReason.MAX_ITERATIONS if self.cut else StopReason.SPACE_EXHAUSTED


class Planner(Struct, frozen=True, kw_only=True):
    """What all configurations of a task have in common in this installation."""

    task: TaskFile
    mode: DeploymentMode
    engine: str
    rules: EngineRules
    kubernetes: KubernetesSpec | None
    node_ids: tuple[str, ...]
    choice: ToolChoice
    missing: tuple[Missing, ...]
    model_precisions: tuple[str, ...] = ()
    image_cuda: CudaVersion | None = None
    cuda_rules: CudaRules = CudaRules.STRICT
    devices: tuple[ResourceDefinition, ...] = ()
    model_shape: ModelShape | None = None
    request_tokens: int = UNKNOWN_TOKENS

    def experiment(
        self, ordinal: int, point: Point
    ) -> tuple[PlannedExperiment, list[Missing], list[str]]:
        """With what the engine cannot take, and notes. Raises RefusedError for a bad parameter."""
        meant, notes = without_presets(point, self.rules.task_fields)
        quantized_by = quantization_named(self.task.model.id_or_path)
        parameters, lacking, said = engine_parameters(self.engine, self.rules, meant, quantized_by)
        notes += said
        needs = self._needs(parameters)
        notes += needs.notes
        kubernetes, part, gpus = self._cluster_needs(meant)
        estimate = self._memory(meant, parameters)
        planned = PlannedExperiment(
            ordinal=ordinal,
            parameters=point.shown(),
            engine=EngineSpec(
                runtime=Runtime(self.mode.value),
                engine=self.engine,
                model=self.task.model.id_or_path,
                parameters=parameters,
                image_tag=self.task.runtime_image_tag,
                kubernetes=kubernetes,
            ),
            request=request_for(
                self.task,
                meant,
                self.node_ids,
                needs,
                mode=self.mode,
                gpus=gpus,
                container=(kubernetes or KubernetesSpec()).container.resources,
                part=part,
                estimated_mb=estimate.memory_mb if estimate is not None else None,
            ),
            preflight=needs.findings,
            power_limit_w=point.gpus.get(POWER_LIMIT),
            sm_clock_mhz=point.gpus.get(SM_CLOCK),
            memory_estimate=estimate,
            memory_source=estimate.source if estimate is not None else MemorySource.MODEL_NAME,
        )
        return planned, lacking, notes

    def _cluster_needs(
        self, point: Point
    ) -> tuple[KubernetesSpec | None, ClusterPart | None, int | None]:
        """With its custom devices, the part of a GPU that is asked for, and how many are held;
        None: as whole GPUs are.
        """
        part = part_of(self.task.gpus) if self.mode in CLUSTER_MODES else None
        if self.kubernetes is None or not self.node_ids:
            return self.kubernetes, part, None
        asked = devices_for(self.task.gpus, world_size(point), self.devices, part)
        if asked is None:
            return self.kubernetes, None, None
        kubernetes = replace(self.kubernetes, devices=asked.container)
        return kubernetes, asked.part, asked.gpus

    def _memory(self, point: Point, flags: Mapping[str, Any]) -> MemoryEstimate | None:
        """None where the task says how much, or asks for parts of GPUs."""
        if not is_estimated(self.task.gpus):
            return None
        return estimate_memory(
            self.task.model.id_or_path,
            point,
            flags,
            self.model_shape,
            self.model_precisions,
            self.request_tokens,
        )

    def _needs(self, parameters: Mapping[str, Any]) -> Preflight:
        tag = self.task.runtime_image_tag
        runtime = self.kubernetes.serving_runtime if self.kubernetes is not None else None
        return preflight(
            parameters,
            # Engines without a dtype, such as llama.cpp, convert what a GPU lacks.
            model_precisions=self.model_precisions if takes(self.rules, "dtype") else (),
            is_in_image=self.mode is not DeploymentMode.PROCESS
            and not self.engine.startswith(SIMULATED),
            is_in_cluster=self.mode in CLUSTER_MODES,
            image=runtime or (f"{self.engine}:{tag}" if tag else self.engine),
            image_cuda=self.image_cuda,
            rules=self.cuda_rules,
        )

    def is_possible(self, point: Point) -> bool:
        """Whether the engine takes this configuration."""
        try:
            _, lacking, _ = self.experiment(1, point)
        except RefusedError:
            return False
        return not lacking


def make_planner(
    task: TaskFile, offers: Sequence[Offer], cuda_rules: CudaRules = CudaRules.STRICT
) -> Planner:
    """Raises RefusedError for what no installation could run."""
    check_task(task)
    return _planner_of(task, offers, cuda_rules)


def check_task(task: TaskFile) -> None:
    """Raise RefusedError with everything in the task that no installation could run."""
    mistakes = Mistakes()
    with mistakes.collected():
        objective_check.refuse_excessive(task.benchmark)
    with mistakes.collected():
        _refuse_bad_tag(task.runtime_image_tag)
    with mistakes.collected():
        refuse_bad_benchmark(task)
    with mistakes.collected():
        objective_check.refuse_bad_objectives(task.optimization)
    mistakes.refuse()


def _planner_of(task: TaskFile, offers: Sequence[Offer], cuda_rules: CudaRules) -> Planner:
    known = known_engines(offers)
    mode = mode_of(task, known)
    kubernetes = kubernetes_spec(task, mode, known)
    engine = _engine(task, mode, known, offers)
    refuse_unread(task.model.id_or_path, "$.model.id_or_path", mode, offers)
    tokenizer = task.benchmark.model_tokenizer
    refuse_unread(tokenizer, "$.benchmark.model_tokenizer", mode, offers)
    if (probe := task.benchmark.quality) is not None:
        refuse_unread(probe.accuracy_file, "$.benchmark.quality.accuracy_file", mode, offers)
    choice = choose_tool(wanted_tool(task.benchmark), serving_offers(task, mode, engine, offers))
    tool = choice.tool or BenchmarkTool.BUILTIN
    nodes = eligible_nodes(task, mode, engine, offers, tool)
    devices = devices_offered(task.gpus, mode, offers, nodes)
    return Planner(
        task=task,
        mode=mode,
        engine=engine,
        rules=engine_rules(engine, mode, offers),
        kubernetes=kubernetes,
        node_ids=devices.node_ids,
        choice=choice,
        missing=tuple(missing_nodes(task, mode, engine, offers, tool)),
        model_precisions=precisions_offered(task.model.id_or_path, offers),
        image_cuda=(
            None
            if mode is DeploymentMode.PROCESS or (kubernetes and kubernetes.serving_runtime)
            else cuda_offered(engine, task.runtime_image_tag, offers, mode)
        ),
        cuda_rules=cuda_rules,
        devices=devices.definitions,
        model_shape=shape_offered(task.model.id_or_path, offers),
        request_tokens=tokens_of_request(task.benchmark),
    )


def make_plan(
    task: TaskFile, offers: Sequence[Offer], cuda_rules: CudaRules = CudaRules.STRICT
) -> Plan:
    """Expand the task. Raises RefusedError with everything that no installation could run."""
    mistakes = Mistakes()
    with mistakes.collected():
        check_task(task)
    with mistakes.collected():
        return _plan_of(task, _planner_of(task, offers, cuda_rules), mistakes)
    raise mistakes.refusal()


def _plan_of(task: TaskFile, planner: Planner, mistakes: Mistakes) -> Plan:
    """Raise RefusedError with these mistakes, and those of the configurations."""
    try:
        search = make_search(task)
        # Of a search every single value is checked here, a configuration when it is proposed.
        grid = expand(task) if search is None else _single_values(search.space)
    except RefusedError:
        # What spans no configurations has flags all the same.
        with mistakes.collected():
            check_parameters(planner.engine, planner.rules, first_values(task))
        raise
    places = RowPlaces(task)
    experiments: list[PlannedExperiment] = []
    unknown: dict[Missing, None] = {}
    notes: dict[str, None] = {}
    for ordinal, point in enumerate(grid.points, start=1):
        with mistakes.collected(), places.told(point):
            planned, lacking, said = planner.experiment(ordinal, point)
            experiments.append(planned)
            unknown |= dict.fromkeys(lacking)
            notes |= dict.fromkeys(said)
    mistakes.refuse()
    notes_of_task = plan_notes(task, planner.mode, grid.total, grid.cut, planner.choice.note)
    return Plan(
        mode=planner.mode,
        benchmark_tool=planner.choice.tool,
        experiments=tuple(experiments) if search is None else (),
        total=grid.total,
        cut=grid.cut,
        missing=(*planner.missing, *unknown),
        notes=(*notes_of_task, *search_notes(search), *notes),
        search=search,
        samples=_one_for_each_request(experiments) if search is not None else (),
    )


def make_search(task: TaskFile, default_seed: int = 0, prior: Prior | None = None) -> Search | None:
    """None: a grid. Raises RefusedError for a bad range."""
    if task.optimization.strategy is Strategy.GRID_SEARCH:
        return None
    return search_of(task.optimization, space_of(search_axes(task)), default_seed, prior)


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
    found: dict[bytes, PlannedExperiment] = {}
    for each in planned:
        found.setdefault(json.encode(each.request), each)
    return tuple(found.values())


def _single_values(space: Space) -> Grid:
    size = LARGEST_INTEGER if space.size is None else min(space.size, LARGEST_INTEGER)
    return Grid(points=tuple(space.single_values()), total=size, cut=0)


def _refuse_bad_tag(tag: str | None) -> None:
    if tag is not None and _IMAGE_TAG.fullmatch(tag) is None:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected the tag of an image: at most 128 letters, digits, '_', '.' and '-', the "
            f"first none of the last two; got {tag!r}",
            path="$.runtime_image_tag",
        )


def _engine(
    task: TaskFile, mode: DeploymentMode, known: Sequence[str], offers: Sequence[Offer]
) -> str:
    engine = engine_of(task.base_runtime, known)
    if engine is None and mode is DeploymentMode.OME:
        engine = engine_of_runtime(serving_runtime(task, known), offers)
    if engine is not None:
        return engine
    if known and mode is not DeploymentMode.OME:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected one of {', '.join(known)}, got {task.base_runtime!r}"
            f"{did_you_mean(task.base_runtime, known)}",
            path="$.base_runtime",
        )
    return task.base_runtime
