"""What of a `StartExperiment` this host can run, and as which command."""

from pathlib import Path

from schemas.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS, BenchmarkTool
from schemas.errors import ErrorCode
from schemas.executor import StartExperiment
from services.executor.engines import table
from services.executor.engines.table import EngineCommand, EngineRefused
from services.executor.settings import ExecutorSettings
from shared.benchmarks.traffic import UnsupportedTraffic, parse_scenario, request_parameters
from shared.errors import RefusedError


def command_for(
    command: StartExperiment, *, port: int, settings: ExecutorSettings
) -> EngineCommand:
    """The engine's command on `port`. Raises EngineRefused."""
    return table.build_command(
        command.engine.engine,
        _model(command.engine.model, settings.model_root_paths),
        command.engine.parameters,
        port=port,
        served_model_name=command.benchmark.model_name or command.engine.model,
    )


def check_runnable(command: StartExperiment, settings: ExecutorSettings) -> None:
    """Raises RefusedError naming the field, if this host could not run it whatever is free."""
    try:
        engine = command_for(command, port=0, settings=settings)
        missing = table.missing(engine.engine)
    except EngineRefused as error:
        raise RefusedError(error.code, error.message, path=error.path) from error
    if missing is not None:
        raise RefusedError(ErrorCode.UNSUPPORTED, missing, path="$.engine.engine")
    if engine.simulated and not settings.allow_simulated_engine:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            "the simulated engine is switched off on this node",
            path="$.engine.engine",
        )
    _check_benchmark(command)


def _check_benchmark(command: StartExperiment) -> None:
    benchmark = command.benchmark
    if benchmark.tool is BenchmarkTool.GENAI_BENCH:
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            "this node has no genai-bench; it offers 'builtin'",
            path="$.benchmark.tool",
        )
    if benchmark.model_name is not None and benchmark.model_name.startswith("-"):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a model's name, got {benchmark.model_name!r}",
            path="$.benchmark.model_name",
        )
    if not benchmark.traffic_scenarios or not benchmark.num_concurrency:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected at least one traffic scenario and one concurrency",
            path="$.benchmark",
        )
    levels = len(benchmark.traffic_scenarios) * len(benchmark.num_concurrency)
    if levels > LARGEST_LEVELS or max(benchmark.num_concurrency) > LARGEST_CONCURRENCY:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected at most {LARGEST_LEVELS} levels of at most {LARGEST_CONCURRENCY} requests "
            "at once",
            path="$.benchmark.num_concurrency",
        )
    if benchmark.task != "text-to-text":
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"expected 'text-to-text', got {benchmark.task!r}",
            path="$.benchmark.task",
        )
    try:
        for scenario in benchmark.traffic_scenarios:
            parse_scenario(scenario)
        request_parameters(benchmark.additional_params)
    except UnsupportedTraffic as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, error.message, path=error.path) from error


def _model(model: str, roots: tuple[Path, ...]) -> str:
    """The model as the engine is told it: a path inside a root, where roots are set."""
    if not roots:
        return model
    for root in roots:
        # Resolved on both sides, so that neither `..` nor a link leads out.
        inside = (root / model).resolve()
        if inside.exists() and inside.is_relative_to(root.resolve()):
            return str(inside)
    if model.startswith(("/", ".", "~")) or ".." in Path(model).parts:
        raise EngineRefused(
            ErrorCode.BAD_REQUEST,
            f"expected a model inside {', '.join(map(str, roots))}, got {model!r}",
            "$.model.id_or_path",
        )
    return model
