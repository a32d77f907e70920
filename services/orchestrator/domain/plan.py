"""What a task becomes in this installation, and what the installation lacks for it."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from schemas.benchmark import (
    LARGEST_CONCURRENCY,
    LARGEST_LEVELS,
    BenchmarkSpec,
    BenchmarkTool,
)
from schemas.errors import ErrorCode
from schemas.executor import EngineSpec, Runtime, RuntimeOffer
from schemas.orchestrator import PlannedExperiment
from schemas.task import BenchmarkConfig, DeploymentMode, Strategy, TaskFile
from services.orchestrator.domain.engines import (
    KNOWN_ENGINES,
    engine_of,
    flags_of,
    mode_of,
)
from services.orchestrator.domain.expansion import Point, expand
from services.orchestrator.domain.sizing import request_for
from shared.errors import RefusedError
from shared.sizing import degree_named, hyphenated


class Offer(Struct, frozen=True, kw_only=True):
    """What one present executor can run."""

    executor_id: str
    runtimes: tuple[RuntimeOffer, ...]
    benchmark_tools: tuple[str, ...] = ()


class Missing(Struct, frozen=True, kw_only=True):
    """Something that this installation lacks; `path` is the field of the task that needs it."""

    path: str
    sentence: str


class Plan(Struct, frozen=True, kw_only=True):
    """A task's expansion."""

    mode: DeploymentMode
    experiments: tuple[PlannedExperiment, ...]
    total: int
    cut: int
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


def make_plan(task: TaskFile, offers: Sequence[Offer]) -> Plan:
    """Expand the task. Raises RefusedError for what no installation could run."""
    _refuse_excessive(task.benchmark)
    mode = mode_of(task)
    engine = _engine(task, mode)
    grid = expand(task)
    nodes = eligible_nodes(task, mode, engine, offers)
    experiments: list[PlannedExperiment] = []
    unknown: dict[str, None] = {}
    for ordinal, point in enumerate(grid.points, start=1):
        parameters, without_flag = _engine_parameters(engine, point)
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
        *(() if nodes else _missing_runtime(task, mode, engine, offers)),
        *_missing_strategy(task),
        *(_missing_flag(engine, field) for field in unknown),
    )
    return Plan(
        mode=mode,
        experiments=tuple(experiments),
        total=grid.total,
        cut=grid.cut,
        missing=missing,
        notes=tuple(_notes(task, mode, grid.total, grid.cut)),
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


def eligible_nodes(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer]
) -> tuple[str, ...]:
    """The executors that can run this engine in this mode, of those that the task allows."""
    allowed = set(task.gpus.nodes) if task.gpus else set()
    return tuple(
        offer.executor_id
        for offer in sorted(offers, key=lambda offer: offer.executor_id)
        if _serves(offer, mode, engine)
        and _measures(offer, task.benchmark.tool)
        and (not allowed or offer.executor_id in allowed)
    )


def benchmark_spec(task: TaskFile) -> BenchmarkSpec:
    """The task's benchmark in the executor's terms: minutes become seconds."""
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
        tool=config.tool,
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


def _engine(task: TaskFile, mode: DeploymentMode) -> str:
    engine = engine_of(task.base_runtime)
    if engine is not None:
        return engine
    if mode is not DeploymentMode.OME:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected one of {', '.join(KNOWN_ENGINES)}, got {task.base_runtime!r}",
            path="$.base_runtime",
        )
    return task.base_runtime


def _engine_parameters(engine: str, point: Point) -> tuple[dict[str, Any], tuple[str, ...]]:
    parameters: dict[str, Any] = {}
    unknown: list[str] = []
    for block, fields in (("quant_config", point.quant), ("parallel_config", point.parallel)):
        flags = flags_of(engine, block, fields)
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


def _serves(offer: Offer, mode: DeploymentMode, engine: str) -> bool:
    return any(
        runtime.runtime.value == mode.value and engine in runtime.engines
        for runtime in offer.runtimes
    )


def _measures(offer: Offer, tool: BenchmarkTool) -> bool:
    return tool is BenchmarkTool.AUTO or tool.value in offer.benchmark_tools


def _missing_runtime(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer]
) -> Iterator[Missing]:
    if not offers:
        yield Missing(
            path="$.deployment_mode", sentence="no executor of this installation is present"
        )
        return
    serving = [offer for offer in offers if _serves(offer, mode, engine)]
    if not serving:
        yield _missing_engine(task, mode, engine, offers)
        return
    if not any(_measures(offer, task.benchmark.tool) for offer in serving):
        yield Missing(
            path="$.benchmark.tool",
            sentence=f"no executor that runs {engine} has the benchmark tool "
            f"'{task.benchmark.tool.value}'",
        )
        return
    able = ", ".join(offer.executor_id for offer in serving)
    yield Missing(
        path="$.gpus.nodes",
        sentence=f"none of the nodes asked for runs {engine} in mode '{mode.value}'; "
        f"these do: {able}",
    )


def _missing_engine(
    task: TaskFile, mode: DeploymentMode, engine: str, offers: Sequence[Offer]
) -> Missing:
    reasons = [
        f"{offer.executor_id}: {reason}"
        for offer in offers
        for runtime in offer.runtimes
        if runtime.runtime.value == mode.value
        for name, reason in runtime.missing.items()
        if name in {engine, mode.value}
    ]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    if task.deployment_mode is None and engine_of(task.base_runtime) is None:
        return Missing(
            path="$.base_runtime",
            sentence=f"{task.base_runtime!r} is no engine of {', '.join(KNOWN_ENGINES)} and so "
            f"counts as a ClusterServingRuntime, but no executor runs mode 'ome'{why}",
        )
    serves_mode = any(
        runtime.runtime.value == mode.value and runtime.engines
        for offer in offers
        for runtime in offer.runtimes
    )
    if serves_mode:
        return Missing(
            path="$.base_runtime",
            sentence=f"no executor runs engine {engine!r} in mode '{mode.value}'{why}",
        )
    return Missing(path="$.deployment_mode", sentence=f"no executor runs mode '{mode.value}'{why}")


def _missing_strategy(task: TaskFile) -> Iterator[Missing]:
    strategy = task.optimization.strategy
    if strategy is not Strategy.GRID_SEARCH:
        yield Missing(
            path="$.optimization.strategy",
            sentence=f"this installation searches by 'grid_search', not by '{strategy.value}'",
        )


def _missing_flag(engine: str, field: str) -> Missing:
    if field.endswith(".preset"):
        block = field.partition(".")[0]
        return Missing(
            path=f"$.{field}",
            sentence=f"this installation does not know what the presets of {block} stand for",
        )
    return Missing(path=f"$.{field}", sentence=f"engine {engine!r} has no flag for {field}")


def _notes(task: TaskFile, mode: DeploymentMode, total: int, cut: int) -> Iterator[str]:
    if task.deployment_mode is None:
        yield f"deployment_mode is not given; '{mode.value}' follows from the rest of the task"
    if cut:
        yield f"max_iterations cuts the grid: {total - cut} of {total} configurations are run"
    if task.slo is not None:
        yield "slo is kept with the task; experiments are ranked by the objective alone"
