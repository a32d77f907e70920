"""Which benchmarks this host can run."""

from pathlib import Path

from schemas.benchmark import LARGEST_CONCURRENCY, LARGEST_LEVELS, BenchmarkSpec, BenchmarkTool
from schemas.errors import ErrorCode
from services.executor.engines.table import EngineRefused
from services.executor.runtimes.process import model_of
from shared.benchmarks.tools import ADAPTERS, chosen_tool, installed_tools
from shared.benchmarks.traffic import UnsupportedTraffic
from shared.errors import RefusedError


def check_benchmark(benchmark: BenchmarkSpec, roots: tuple[Path, ...]) -> None:
    """Raises RefusedError naming the field. Files are read only from below `roots`, if there are
    any.
    """
    tools = installed_tools()
    if benchmark.tool is not BenchmarkTool.AUTO and benchmark.tool not in tools:
        missing = ADAPTERS[benchmark.tool].missing() if benchmark.tool in ADAPTERS else None
        raise RefusedError(
            ErrorCode.UNSUPPORTED,
            f"this node has no {benchmark.tool.value}, it offers {', '.join(tools)}"
            + (f": {missing}" if missing else ""),
            path="$.benchmark.tool",
        )
    if benchmark.model_name is not None and benchmark.model_name.startswith("-"):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a model's name, got {benchmark.model_name!r}",
            path="$.benchmark.model_name",
        )
    if benchmark.model_tokenizer is not None:
        _check_tokenizer(benchmark.model_tokenizer, roots)
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
        ADAPTERS[chosen_tool(benchmark.tool)].check(benchmark)
    except UnsupportedTraffic as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, error.message, path=error.path) from error


def _check_tokenizer(tokenizer: str, roots: tuple[Path, ...]) -> None:
    try:
        model_of(tokenizer, roots)
    except EngineRefused as error:
        raise RefusedError(
            error.code,
            f"expected a tokenizer's name, or its folder inside {', '.join(map(str, roots))}, "
            f"got {tokenizer!r}",
            path="$.benchmark.model_tokenizer",
        ) from error


def model_place(model: str, roots: tuple[Path, ...]) -> str:
    """Where a tool that runs on this host finds the model: below a root, else by its name."""
    below = (root / model for root in roots)
    return next((str(path) for path in below if path.exists()), model)
