"""A benchmark of a running server with monitoring of its GPUs, for asynchronous programs."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.document import read_spec
from shared.benchmarks.experiment_metrics import with_gpus
from shared.benchmarks.levels.request_columns import without_requests
from shared.benchmarks.tools.adapter import ProgressCallback, Target
from shared.benchmarks.tools.present import run_benchmark
from shared.client.watch import Watch
from shared.datasets.hosts import AllowedHosts
from shared.errors import StewardError
from shared.load_files.places import own_places
from shared.load_files.preparation import fetch_files, prepare_files
from shared.waiting import within

LEVEL_SLACK_SECONDS: Final = 180.0
MAX_MONITORING_SECONDS: Final = 86_400.0
STOP_SECONDS: Final = 2.0


async def run_benchmark_job(
    endpoint_url: str,
    benchmark_spec: Mapping[str, Any],
    gpu_indices: Sequence[int] | None = None,
    *,
    node_id: str | None = None,
    monitor: bool = True,
    api_key: str | None = None,
    directory: Path | None = None,
    on_progress: ProgressCallback | None = None,
    hosts: AllowedHosts | None = None,
) -> dict[str, Any]:
    """Benchmark the OpenAI-compatible server at `endpoint_url`, watching GPUs meanwhile.

    The spec has the names of a task file's benchmark block; without `model_name` the one model
    that is served is meant. The result is the benchmark's (`tool`, `levels`, `metrics`, ...) with
    `gpu_monitoring`: what `stop_monitoring` returns of the node's GPUs, only those of `gpu_indices`
    if given. It is None where no platform could watch them, and `gpu_monitoring_missing` says why.
    Throughput per GPU is that of `gpu_indices`. A `path` of a dataset or trace is of this host,
    a `url` of one of `hosts`.
    The tool's files stay in `directory`, if one is given.

    Raises RefusedError for a spec that cannot be, UnsupportedTraffic for what the tool cannot
    generate, and BenchmarkFailed.
    """
    spec = read_spec(benchmark_spec)
    base_url = endpoint_url.rstrip("/").removesuffix("/v1")
    model_name = spec.model_name or await _only_model(base_url, api_key)
    target = Target(base_url=base_url, model_name=model_name, api_key=api_key)
    watch = await _start(spec, node_id) if monitor else "nobody asked to watch GPUs"
    try:
        with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as temporary:
            files = Path(temporary) / "files"
            fetched = await fetch_files(spec, own_places(files, hosts or AllowedHosts()))
            load = await prepare_files(spec, fetched, target, files)
            result = await run_benchmark(
                replace(spec, model_name=model_name),
                target,
                directory=directory or Path(temporary) / "run",
                on_progress=on_progress,
                files=load.files,
            )
            result = replace(result, dataset=load.dataset, trace=load.trace)
    except BaseException:
        if isinstance(watch, Watch):
            # What was seen is lost; the agent ends the monitoring by itself.
            with suppress(StewardError, TimeoutError):
                async with within(STOP_SECONDS):
                    await watch.stop()
        raise
    gpu_summary, missing = await _gpu_summary(watch, gpu_indices)
    metrics = with_gpus(result.metrics, len(set(gpu_indices or ())))
    shown_result = without_requests(replace(result, metrics=metrics))
    document: dict[str, Any] = msgspec.to_builtins(shown_result)
    return document | {"gpu_monitoring": gpu_summary, "gpu_monitoring_missing": missing}


async def _only_model(base_url: str, api_key: str | None) -> str:
    async with ChatServer(base_url=base_url, model_name="", api_key=api_key) as server:
        return await server.only_model()


async def _start(spec: BenchmarkSpec, node_id: str | None) -> Watch | str:
    """The monitoring, or why there is none."""
    longest_seconds = spec.num_levels * (spec.max_time_per_level_seconds + LEVEL_SLACK_SECONDS)
    try:
        return await Watch.start(node_id, max_seconds=min(longest_seconds, MAX_MONITORING_SECONDS))
    except (StewardError, ValueError) as error:
        return str(error)


async def _gpu_summary(
    watch: Watch | str, gpu_indices: Sequence[int] | None
) -> tuple[dict[str, Any] | None, str | None]:
    if isinstance(watch, str):
        return None, watch
    try:
        summary = await watch.stop()
    except StewardError as error:
        return None, str(error)
    if gpu_indices is not None:
        indices = {str(index) for index in gpu_indices}
        absent = sorted(indices - summary["gpu_stats"].keys())
        summary["gpu_stats"] = {
            index: stats for index, stats in summary["gpu_stats"].items() if index in indices
        }
        if absent:
            return summary, f"node {watch.node_id} has no GPU {', '.join(absent)}"
    return summary, None
