"""What a task becomes in this installation, and what the installation lacks for it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS, BenchmarkSpec, BenchmarkTool
from schemas.engine_rules import EngineRules
from schemas.errors import ErrorCode
from schemas.executor import EngineSpec, Runtime
from schemas.orchestrator import PlannedExperiment
from schemas.task import BenchmarkConfig, DeploymentMode, Strategy, TaskFile
from services.orchestrator.domain.cluster_objects import (
    engine_of_runtime,
    kubernetes_spec,
    serving_runtime,
)
from services.orchestrator.domain.engines import engine_of, fields_taken, mode_of
from services.orchestrator.domain.executor_offers import (
    CLUSTER_MODES,
    Offer,
    eligible_nodes,
    engine_rules,
    known_engines,
    refuse_unread,
    serving_offers,
)
from services.orchestrator.domain.expansion import Grid, Point, expand
from services.orchestrator.domain.requirements_check import (
    Missing,
    missing_field,
    missing_nodes,
    missing_strategy,
)
from services.orchestrator.domain.sizing import request_for
from services.orchestrator.domain.tools import choose_tool
from shared.accelerator_rules.compute_capability import spelled
from shared.accelerator_rules.precision import Demand, demand_of, hint_for
from shared.engine_parameters.check import check_parameters
from shared.errors import RefusedError
from shared.gpu.sizing import degree_named, hyphenated

# A tag as image references spell it: docs.docker.com/reference/cli/docker/image/tag
_IMAGE_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Plan(Struct, frozen=True, kw_only=True):
    """A task's expansion. `benchmark_tool` is what all its experiments are measured with; None if
    no node could run it.
    """

    mode: DeploymentMode
    benchmark_tool: BenchmarkTool | None
    experiments: tuple[PlannedExperiment, ...]
    total: int
    cut: int
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


def make_plan(task: TaskFile, offers: Sequence[Offer]) -> Plan:
    """Expand the task. Raises RefusedError for what no installation could run."""
    _refuse_excessive(task.benchmark)
    _refuse_bad_tag(task.runtime_image_tag)
    known = known_engines(offers)
    mode = mode_of(task, known)
    kubernetes = kubernetes_spec(task, mode, known)
    engine = _engine(task, mode, known, offers)
    refuse_unread(task.model.id_or_path, "$.model.id_or_path", mode, offers)
    tokenizer = task.benchmark.model_tokenizer
    refuse_unread(tokenizer, "$.benchmark.model_tokenizer", mode, offers)
    rules = engine_rules(engine, mode, offers)
    choice = choose_tool(task.benchmark.tool, serving_offers(task, mode, engine, offers))
    tool = choice.tool or BenchmarkTool.BUILTIN
    is_grid = task.optimization.strategy is Strategy.GRID_SEARCH
    grid = expand(task) if is_grid else Grid(points=(), total=0, cut=0)
    nodes = eligible_nodes(task, mode, engine, offers, tool)
    experiments: list[PlannedExperiment] = []
    unknown: dict[Missing, None] = {}
    notes: dict[str, None] = {}
    for ordinal, point in enumerate(grid.points, start=1):
        parameters, lacking, said = _engine_parameters(engine, rules, point)
        demand = demand_of(parameters)
        request = request_for(task, point, nodes, demand, mode=mode)
        unknown |= dict.fromkeys(lacking)
        notes |= dict.fromkeys(said)
        if demand is not None:
            notes[_demand_note(demand)] = None
        experiments.append(
            PlannedExperiment(
                ordinal=ordinal,
                parameters=point.shown(),
                engine=EngineSpec(
                    runtime=Runtime(mode.value),
                    engine=engine,
                    model=task.model.id_or_path,
                    parameters=parameters,
                    image_tag=task.runtime_image_tag,
                    kubernetes=kubernetes,
                ),
                request=request,
            )
        )
    missing = (
        *missing_nodes(task, mode, engine, offers, tool),
        *missing_strategy(task),
        *unknown,
    )
    return Plan(
        mode=mode,
        benchmark_tool=choice.tool,
        experiments=tuple(experiments),
        total=grid.total,
        cut=grid.cut,
        missing=missing,
        notes=(*_notes(task, mode, grid.total, grid.cut, choice.note), *notes),
    )


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


def benchmark_spec(task: TaskFile, tool: BenchmarkTool) -> BenchmarkSpec:
    """The task's benchmark in the executor's terms, with `tool`: minutes become seconds."""
    config = task.benchmark
    return BenchmarkSpec(
        task=config.task,
        model_name=config.model_name,
        model_tokenizer=config.model_tokenizer,
        traffic_scenarios=config.traffic_scenarios,
        num_concurrency=config.num_concurrency,
        max_time_per_level_seconds=config.max_time_per_iteration * 60,
        max_requests_per_level=config.max_requests_per_iteration,
        warmup_requests=config.warmup_requests,
        additional_params=config.additional_params,
        tool=tool,
        max_error_rate=config.max_error_rate,
        arrivals=config.arrivals,
        arrival_trace_seconds=config.arrival_trace_seconds,
        prefix_share=config.prefix_share,
    )


def _refuse_excessive(config: BenchmarkConfig) -> None:
    levels = len(config.traffic_scenarios) * len(config.arrivals or config.num_concurrency)
    if levels > LARGEST_LEVELS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_LEVELS} pairs of a traffic scenario and a concurrency, "
            f"got {levels}",
            path="$.benchmark.num_concurrency",
        )
    for place, concurrency in enumerate(config.num_concurrency):
        if concurrency > LARGEST_CONCURRENCY:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected at most {LARGEST_CONCURRENCY} requests at once, got {concurrency}",
                path=f"$.benchmark.num_concurrency[{place}]",
            )


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
            f"expected one of {', '.join(known)}, got {task.base_runtime!r}",
            path="$.base_runtime",
        )
    return task.base_runtime


def _engine_parameters(
    engine: str, rules: EngineRules, point: Point
) -> tuple[dict[str, Any], list[Missing], list[str]]:
    """With what the engine cannot take, and notes. Raises RefusedError for a bad parameter."""
    parameters: dict[str, Any] = {}
    unknown: list[Missing] = []
    notes: list[str] = []
    for block, fields in (("quant_config", point.quant), ("parallel_config", point.parallel)):
        taken = fields_taken(rules, block, fields)
        for flag, value in taken.parameters.items():
            name = _given_as(flag, point.parameters)
            if name is None:
                parameters[flag] = value
            else:
                notes.append(f"parameters.{name} takes the place of {flag!r} of {block}")
        unknown += [missing_field(engine, block, *each) for each in taken.unknown]
        notes += taken.notes
    given = _in_the_engines_words(rules, point.parameters)
    check_parameters(engine, rules, given)
    return {**parameters, **given}, unknown, notes


def _demand_note(demand: Demand) -> str:
    needed = spelled(demand.capability)
    return (
        f"{demand.parameter} needs compute capability {needed}: NVIDIA GPUs below it are not taken"
        f"{hint_for(demand.capability)}"
    )


def _in_the_engines_words(rules: EngineRules, parameters: dict[str, Any]) -> dict[str, Any]:
    """Degrees of parallelism have many spellings, of which an engine knows its own."""
    given: dict[str, Any] = {}
    for name, value in parameters.items():
        rule = rules.task_fields.get(degree_named(name) or "")
        flag = rule.flag if rule is not None and rule.flag is not None else hyphenated(name)
        spelling = name if flag == hyphenated(name) else flag
        if spelling in given:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"{name!r} is given twice, in two spellings",
                path=f"$.parameters.{name}",
            )
        given[spelling] = value
    return given


def _given_as(flag: str, parameters: dict[str, Any]) -> str | None:
    """The parameter by which the user sets the same himself."""
    meaning = degree_named(flag) or flag
    return next(
        (name for name in parameters if meaning in {degree_named(name), hyphenated(name)}), None
    )


def _notes(
    task: TaskFile, mode: DeploymentMode, total: int, cut: int, choice: str
) -> Iterator[str]:
    if task.deployment_mode is None:
        yield f"deployment_mode is not given; '{mode.value}' follows from the rest of the task"
    if cut:
        yield f"max_iterations cuts the grid: {total - cut} of {total} configurations are run"
    search = task.optimization
    is_drawn = search.n_initial_random is not None or search.seed is not None
    if is_drawn and search.strategy is Strategy.GRID_SEARCH:
        yield "n_initial_random and seed have no meaning for a grid, which draws nothing"
    if task.slo is not None:
        yield "slo is kept with the task; experiments are ranked by the objective alone"
    if task.runtime_image_tag is not None and mode is DeploymentMode.PROCESS:
        yield "runtime_image_tag is not used in mode 'process', which starts no image"
    if task.gpus is not None and task.gpus.cluster and mode not in CLUSTER_MODES:
        yield f"gpus.cluster is not used in mode '{mode.value}', which runs in no cluster"
    if choice:
        yield choice
