"""What a task becomes in this installation, and what the installation lacks for it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS, BenchmarkSpec, BenchmarkTool
from schemas.errors import ErrorCode
from schemas.executor import EngineSpec, Runtime
from schemas.orchestrator import PlannedExperiment
from schemas.task import BenchmarkConfig, DeploymentMode, TaskFile
from services.orchestrator.domain.engines import engine_of, flags_of, mode_of
from services.orchestrator.domain.executor_offers import (
    Offer,
    eligible_nodes,
    engine_flags,
    known_engines,
    serving_offers,
)
from services.orchestrator.domain.expansion import Point, expand
from services.orchestrator.domain.requirements_check import (
    Missing,
    missing_flag,
    missing_nodes,
    missing_strategy,
)
from services.orchestrator.domain.sizing import request_for
from services.orchestrator.domain.tools import choose_tool
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
    engine = _engine(task, mode, known)
    flags = engine_flags(engine, offers)
    choice = choose_tool(task.benchmark.tool, serving_offers(task, mode, engine, offers))
    tool = choice.tool or BenchmarkTool.BUILTIN
    grid = expand(task)
    nodes = eligible_nodes(task, mode, engine, offers, tool)
    experiments: list[PlannedExperiment] = []
    unknown: dict[str, None] = {}
    for ordinal, point in enumerate(grid.points, start=1):
        parameters, without_flag = _engine_parameters(flags, point)
        unknown.update(dict.fromkeys(without_flag))
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
                ),
                request=request_for(task, point, nodes),
            )
        )
    missing = (
        *missing_nodes(task, mode, engine, offers, tool),
        *missing_strategy(task),
        *(missing_flag(engine, field) for field in unknown),
    )
    return Plan(
        mode=mode,
        benchmark_tool=choice.tool,
        experiments=tuple(experiments),
        total=grid.total,
        cut=grid.cut,
        missing=missing,
        notes=tuple(_notes(task, mode, grid.total, grid.cut, choice.note)),
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
    )


def _refuse_excessive(config: BenchmarkConfig) -> None:
    levels = len(config.traffic_scenarios) * len(config.num_concurrency)
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


def _engine(task: TaskFile, mode: DeploymentMode, known: Collection[str]) -> str:
    engine = engine_of(task.base_runtime, known)
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
    known_flags: Mapping[str, str], point: Point
) -> tuple[dict[str, Any], tuple[str, ...]]:
    parameters: dict[str, Any] = {}
    unknown: list[str] = []
    for block, fields in (("quant_config", point.quant), ("parallel_config", point.parallel)):
        flags = flags_of(known_flags, block, fields)
        for flag in flags.parameters:
            _refuse_twice(block, flag, point.parameters)
        parameters.update(flags.parameters)
        unknown.extend(flags.unknown)
    return {**parameters, **point.parameters}, tuple(unknown)


def _refuse_twice(block: str, flag: str, parameters: dict[str, Any]) -> None:
    meaning = degree_named(flag) or flag
    for name in parameters:
        if meaning in {degree_named(name), hyphenated(name)}:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"{name!r} and {block} both set {flag!r}; give it once",
                path=f"$.parameters.{name}",
            )


def _notes(
    task: TaskFile, mode: DeploymentMode, total: int, cut: int, choice: str
) -> Iterator[str]:
    if task.deployment_mode is None:
        yield f"deployment_mode is not given; '{mode.value}' follows from the rest of the task"
    if cut:
        yield f"max_iterations cuts the grid: {total - cut} of {total} configurations are run"
    if task.slo is not None:
        yield "slo is kept with the task; experiments are ranked by the objective alone"
    if task.runtime_image_tag is not None and mode is DeploymentMode.PROCESS:
        yield "runtime_image_tag is not used in mode 'process', which starts no image"
    if choice:
        yield choice
