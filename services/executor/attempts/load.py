"""What is asked of an engine that is ready: answers first, then the load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from schemas.executor.attempts import AttemptPhase, FailureKind, StartExperiment
from schemas.task.benchmark import BenchmarkResult
from schemas.task.fingerprint import Canary
from services.executor.attempts.benchmark_check import model_place
from services.executor.attempts.progress import ProgressReporter
from services.executor.domain.admission import gpus_of
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.engine_table import ENGINES
from shared.benchmarks.experiment_metrics import with_gpus
from shared.benchmarks.levels.request_columns import thin_requests
from shared.benchmarks.quality.probe import probe_quality
from shared.benchmarks.tools.adapter import BenchmarkFailed, Target
from shared.benchmarks.tools.canary import Canaries
from shared.benchmarks.tools.present import ADAPTERS, choose_tool, run_benchmark
from shared.datasets.bounds import DatasetRefused
from shared.errors import RefusedError
from shared.load_files.places import FilePlaces
from shared.load_files.preparation import (
    NOTHING_FETCHED,
    FetchedFiles,
    fetch_files,
    prepare_files,
)

_CANARIES: Final = Canaries()  # of this process
# Tools get no other secret: genai-bench writes credentials of clouds into its files.
HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105  # its name


async def fetch_for_load(command: StartExperiment, places: FilePlaces) -> FetchedFiles:
    """Fetch what the attempt's load needs; of a gang's ranks the coordinator's alone.

    Raises AttemptFailed.
    """
    if command.gang is not None:
        return NOTHING_FETCHED
    try:
        return await fetch_files(command.benchmark, places)
    except DatasetRefused as error:
        raise AttemptFailed.of(FailureKind.BENCHMARK_FAILED, error.message) from error


async def probe_and_load(
    command: StartExperiment,
    base_url: str,
    progress: ProgressReporter,
    *,
    roots: tuple[Path, ...],
    directory: Path,
    secrets: Mapping[str, str],
    certificate: Path | None,
    fetched: FetchedFiles,
) -> BenchmarkResult:
    """Raises BenchmarkFailed. With a `certificate` the engine has to show that one."""
    spec, model = command.benchmark, command.engine.model
    endpoint = command.engine.endpoint
    target = Target(
        base_url=base_url,
        model_name=spec.model_name or model,
        model=model_place(model, roots),
        certificate=certificate,
        api_key=secrets.get(endpoint.api_key) if endpoint and endpoint.api_key else None,
        hub_token=secrets.get(HUB_TOKEN),
    )
    await progress.enter(AttemptPhase.WARMING_UP)
    canary = await _measure_canary(command, target)
    answers = None
    if spec.quality is not None:
        try:
            answers = await probe_quality(spec, target, roots)
        except RefusedError as error:
            raise BenchmarkFailed(error.message) from error
    try:
        load = await prepare_files(spec, fetched, target, directory.parent / "load")
    except RefusedError as error:
        raise BenchmarkFailed(error.message) from error
    try:
        result = await run_benchmark(
            spec,
            target,
            directory=directory,
            on_progress=progress.load_progressed,
            files=load.files,
        )
    finally:
        load.files.remove()
    return replace(
        result,
        levels=thin_requests(result.levels),
        metrics=with_gpus(result.metrics, gpus_of(command)),
        quality=answers,
        over_tls=certificate is not None,
        dataset=load.dataset,
        trace=load.trace,
        canary=canary,
    )


async def _measure_canary(command: StartExperiment, target: Target) -> Canary | None:
    """Return how far the load tool is off known times here; None of a simulated engine, whose own
    times are made up.
    """
    engine = ENGINES.get(command.engine.engine.lower())
    if engine is not None and engine.simulated:
        return None
    return await _CANARIES.measure(ADAPTERS[choose_tool(command.benchmark)], target)
