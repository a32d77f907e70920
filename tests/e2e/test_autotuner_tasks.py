"""The autotuner's fifteen task files over the whole platform, each to its best experiment.

None of their engines is here. Each file keeps its blocks but for what only SGLang can take: the
engine is the simulated one, or llama.cpp, as a process, its parameters become so many values of
that engine's, and its load is scaled down.
"""

import gzip
import json
import math
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from shared.testing import run_apart, short_directory
from tests.support.http_server import serving
from tests.support.ports import free_port
from tests.support.processes.inference_engine import require_engine
from tests.support.processes.platform import PlatformProcess, marked_processes

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
DATA_PORT: Final = free_port()
# Of a grid, which runs what it has in any case; of a search, which has to learn.
MOST_EXPERIMENTS: Final = {"grid_search": 2, "bayesian": 4}
ROWS: Final = "question\n" + "".join(f"what is {n} and how much of it\n" for n in range(200))
OF_LLAMA: Final = (
    "local_task.json",
    "docker_task_with_dataset.json",
    "quant_multi_preset_task.json",
)
SMALL_MODEL: Final = "smollm2-135m"


def autotuner_files() -> dict[str, dict[str, Any]]:
    """The files of both releases, by name."""
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    if folder is None:
        pytest.skip("needs the autotuner's task files: set GPUSTEWARD_TEST_DATA to their folder")
    paths = [
        path for kind in ("tasks", "tasks-0.2.1") for path in Path(folder, kind).glob("*.json")
    ]
    return {path.name: json.loads(path.read_bytes()) for path in sorted(paths)}


def count_values(task: dict[str, Any]) -> int:
    """How many configurations its own blocks have."""
    lists: list[Any] = []
    for name in ("parameters", "quant_config", "parallel_config"):
        for value in task.get(name, {}).values():
            values = value.get("values") if isinstance(value, dict) else value
            lists.append(values if isinstance(values, list) else [values])
    return math.prod(len(values) for values in lists if values)


def adapt(task: dict[str, Any], engine: str) -> dict[str, Any]:
    """Replace what only the file's own engine takes, and scale the load down."""
    count = min(count_values(task), task["optimization"].get("max_iterations", 100))
    count = min(count, MOST_EXPERIMENTS[task["optimization"]["strategy"]])
    values: dict[str, list[Any]] = {"ttft-seconds": [0.002 * (1 + n) for n in range(count)]}
    if engine != "simulated":
        values = {"threads": [1], "parallel": [2, 4, 8, 1][:count]}
    dropped = {"runtime_image_tag", "storage", "quant_config", "parallel_config"}
    dropped |= {"clusterbasemodel_config", "clusterservingruntime_config"}
    adapted = {name: block for name, block in task.items() if name not in dropped}
    benchmark = task["benchmark"]
    url = benchmark.get("dataset_url")
    scenario = "D(40,10)" if engine != "simulated" else None
    return {
        **adapted,
        "deployment_mode": "local" if task.get("deployment_mode") == "local" else "process",
        "base_runtime": engine,
        "model": {"id_or_path": SMALL_MODEL if engine != "simulated" else "a-small-model"},
        "parameters": values,
        "optimization": {
            **task["optimization"],
            "max_iterations": count,
            "timeout_per_iteration": 90,
            "trust": False,
        },
        "benchmark": {
            **{name: value for name, value in benchmark.items() if name != "model_tokenizer"},
            "model_name": None,
            "tool": "builtin",
            "max_requests_per_iteration": 16 if engine == "simulated" else 6,
            "max_time_per_iteration": 0.2,
            "num_concurrency": benchmark.get("num_concurrency", [1])[:2],
            **({"traffic_scenarios": [scenario]} if scenario else {}),
            **({"dataset_url": f"http://127.0.0.1:{DATA_PORT}/api_logs.csv.gz"} if url else {}),
        },
    }


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data",
            environment={
                "GPUSTEWARD_EXECUTOR_DATASET_PRIVATE_HOSTS": f"127.0.0.1:{DATA_PORT}",
                "GPUSTEWARD_LOCAL_TOKEN": "always",
            },
        )
        try:
            run_apart(running.start())
            installation = str(running.directory.installation_id())
            yield running
        finally:
            run_apart(running.stop())
        assert marked_processes(installation) == []


@asynccontextmanager
async def dataset_server() -> AsyncIterator[None]:
    async def give(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(ROWS.encode()))

    app = web.Application()
    app.router.add_get("/api_logs.csv.gz", give)
    async with serving(app, port=DATA_PORT):
        yield


async def run_all(
    platform: PlatformProcess, tasks: dict[str, dict[str, Any]], seconds: float
) -> None:
    async with dataset_server():
        submitted = {name: await platform.submit(task) for name, task in tasks.items()}
        for name, task_id in submitted.items():
            view = await platform.until_finished(task_id, within_seconds=seconds)
            experiments = await platform.experiments(task_id)

            assert view["state"] == "completed", (name, view)
            assert view["best_experiment_id"] is not None, name
            wanted = tasks[name]["optimization"]["max_iterations"]
            assert len(experiments) >= wanted, name
            assert {each["state"] for each in experiments} == {"succeeded"}, name
            has_dataset = "dataset_url" in tasks[name]["benchmark"]
            assert all((each["dataset"] is not None) is has_dataset for each in experiments), name


async def test_files_run_on_the_simulated_engine(platform: PlatformProcess) -> None:
    files = autotuner_files()
    assert len(files) == 15

    await run_all(
        platform, {name: adapt(task, "simulated") for name, task in files.items()}, seconds=400
    )


async def test_three_files_run_on_a_real_engine(platform: PlatformProcess) -> None:
    require_engine("llamacpp")
    files = autotuner_files()

    await run_all(
        platform, {name: adapt(files[name], "llamacpp") for name in OF_LLAMA}, seconds=400
    )
