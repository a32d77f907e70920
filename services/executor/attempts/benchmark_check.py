"""Which benchmarks this host can run."""

from pathlib import Path

from schemas.errors import ErrorCode
from schemas.task.benchmark import MAX_CONCURRENCY, MAX_LEVELS, BenchmarkSpec, BenchmarkTool
from services.executor.engines.mounted_model import locate
from shared.benchmarks.quality.probe import read_questions
from shared.benchmarks.tools.present import ADAPTERS, choose_tool, list_installed_tools
from shared.errors import RefusedError


def check_benchmark(benchmark: BenchmarkSpec, roots: tuple[Path, ...]) -> None:
    """Raises RefusedError naming the field. Files are read only from below `roots`."""
    tools = list_installed_tools()
    if benchmark.tool is not BenchmarkTool.AUTO and benchmark.tool not in tools:
        missing = ADAPTERS[benchmark.tool].missing() if benchmark.tool in ADAPTERS else None
        raise _refusal(
            "$.benchmark.tool",
            f"this node has no {benchmark.tool.value}, it offers {', '.join(tools)}"
            + (f": {missing}" if missing else ""),
            ErrorCode.UNSUPPORTED,
        )
    if (name := benchmark.model_name) is not None and name.startswith("-"):
        raise _refusal("$.benchmark.model_name", f"expected a model's name, got {name!r}")
    if benchmark.model_tokenizer is not None:
        _check_tokenizer(benchmark.model_tokenizer, roots)
    if benchmark.quality is not None:
        read_questions(benchmark.quality, roots)
    if not benchmark.traffic_scenarios or not benchmark.num_concurrency:
        raise _refusal("$.benchmark", "expected at least one traffic scenario and one concurrency")
    if benchmark.num_levels > MAX_LEVELS or max(benchmark.num_concurrency) > MAX_CONCURRENCY:
        raise _refusal(
            "$.benchmark.num_concurrency",
            f"expected at most {MAX_LEVELS} levels of at most {MAX_CONCURRENCY} requests at once",
        )
    ADAPTERS[choose_tool(benchmark)].check(benchmark)


def _refusal(path: str, message: str, code: ErrorCode = ErrorCode.BAD_REQUEST) -> RefusedError:
    return RefusedError(code, message, path=path)


def _check_tokenizer(tokenizer: str, roots: tuple[Path, ...]) -> None:
    try:
        locate(tokenizer, roots)
    except RefusedError as error:
        raise _refusal("$.benchmark.model_tokenizer", error.message) from error


def model_place(model: str, roots: tuple[Path, ...]) -> str:
    """Return where a tool on this host finds the model: its path below a root, else its name."""
    below = (root / model for root in roots)
    return next((str(path) for path in below if path.exists()), model)
