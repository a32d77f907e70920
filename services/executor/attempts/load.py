"""What is asked of an engine that is ready: answers first, then the load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase, StartExperiment
from schemas.task.benchmark import BenchmarkResult
from services.executor.attempts.benchmark_check import model_place
from services.executor.attempts.progress import ProgressReporter
from services.executor.domain.admission import gpus_of
from shared.benchmarks.levels.request_columns import thin_requests
from shared.benchmarks.metrics import with_gpus
from shared.benchmarks.quality.probe import probe_quality
from shared.benchmarks.tools.adapter import BenchmarkFailed, Target
from shared.benchmarks.tools.present import run_benchmark
from shared.errors import RefusedError

# Tools get no other secret: genai-bench writes credentials of clouds into its files.
HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105  # its name


async def probe_and_load(
    command: StartExperiment,
    base_url: str,
    progress: ProgressReporter,
    *,
    roots: tuple[Path, ...],
    directory: Path,
    secrets: Mapping[str, str],
) -> BenchmarkResult:
    """Raises BenchmarkFailed."""
    spec, model = command.benchmark, command.engine.model
    target = Target(
        base_url=base_url,
        model_name=spec.model_name or model,
        model=model_place(model, roots),
        hub_token=secrets.get(HUB_TOKEN),
    )
    answers = None
    if spec.quality is not None:
        await progress.enter(AttemptPhase.WARMING_UP)
        try:
            answers = await probe_quality(spec, target, roots)
        except RefusedError as error:
            raise BenchmarkFailed(error.message) from error
    result = await run_benchmark(
        spec, target, directory=directory, on_progress=progress.load_progressed
    )
    return replace(
        result,
        levels=thin_requests(result.levels),
        metrics=with_gpus(result.metrics, gpus_of(command)),
        quality=answers,
    )
