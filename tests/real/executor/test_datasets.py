"""An executor that takes a benchmark's prompts from a file or a local server."""

import asyncio
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from aiohttp import web

from schemas.errors import Refused
from schemas.executor.attempts import AttemptFinished, AttemptOutcome
from schemas.gateway.datasets import DatasetPiece, GetDatasetPiece
from schemas.orchestrator.uploads import ListUploadUses, UploadUses
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.dataset import DatasetFormat, DatasetSpec, DropReason, LengthUnit
from schemas.task.task_file import TaskFile
from schemas.task.trace import TraceSpec
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from shared.benchmarks.tools.spec_check import load_spec
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.task_files.form import form_of
from shared.testing import eventually
from tests.support.http_server import serving
from tests.support.worlds.executor import make_settings, make_start, scheduling
from tests.support.worlds.gateway import Owners, gateway

ROWS = [{"prompt": f"question {number} of many", "answer": "so it is"} for number in range(6)]
LINES = "".join(json.dumps(row) + "\n" for row in [*ROWS, ROWS[0], {"prompt": ""}, {"prompt": "x"}])

# As a task file of that release is written.
TASK_0_2_1 = """{
  "task_name": "docker-tune-with-dataset",
  "deployment_mode": "local",
  "model": {"id_or_path": "llama-3-2-1b-instruct", "namespace": "autotuner"},
  "base_runtime": "sglang",
  "parameters": {"tp-size": [1], "mem-fraction-static": [0.85]},
  "optimization": {
    "strategy": "grid_search",
    "objective": "minimize_latency",
    "max_iterations": 1,
    "timeout_per_iteration": 600
  },
  "benchmark": {
    "task": "text-to-text",
    "model_tokenizer": "meta-llama/Llama-3.2-1B-Instruct",
    "dataset_url": "https://example.com/api_logs.csv.gz",
    "dataset_deduplicate": true,
    "traffic_scenarios": ["D(3800,200)"],
    "num_concurrency": [1, 4],
    "max_time_per_iteration": 10,
    "max_requests_per_iteration": 8,
    "additional_params": {"temperature": 0.0}
  }
}"""


async def run(
    settings: ExecutorSettings, benchmark: BenchmarkSpec, **start_options: Any
) -> AttemptFinished | Refused:
    start = make_start(benchmark=benchmark, **start_options)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await eventually(lambda: bool(scheduler.reports))
        reply = await scheduler.ask(start)
        return reply if isinstance(reply, Refused) else await scheduler.finished(start)


def spec_of(**dataset: Any) -> BenchmarkSpec:
    return BenchmarkSpec(
        traffic_scenarios=("dataset",),
        max_requests_per_level=6,
        tool=BenchmarkTool.BUILTIN,
        dataset=DatasetSpec(**dataset),
    )


async def test_result_says_what_of_the_file_was_used(nats_url: str, tmp_path: Path) -> None:
    root = tmp_path / "datasets"
    root.mkdir()
    (root / "chats.jsonl").write_text(LINES)
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    finished = await run(
        settings, spec_of(path="chats.jsonl", deduplicate=True, min_input_tokens=2, sample=5)
    )

    assert isinstance(finished, AttemptFinished)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.benchmark is not None
    use = finished.benchmark.dataset
    assert use is not None
    assert use.sha256 == hashlib.sha256(LINES.encode()).hexdigest()
    assert (use.format, use.rows, use.used) == (DatasetFormat.PROMPTS, 9, 5)
    assert use.dropped[DropReason.EMPTY] == use.dropped[DropReason.DUPLICATE] == 1
    assert sum(use.dropped.values()) == 4
    assert use.length_unit is LengthUnit.WORDS
    assert (use.mean_input_tokens, use.mean_output_tokens) == (4, 3)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ({"path": "../secret.jsonl"}, "expected a file inside"),
        ({"path": "link.jsonl"}, "expected a file inside"),
        ({"path": "/etc/hostname"}, "expected a file inside"),
        ({"url": "https://data.example/a"}, "GPUSTEWARD_EXECUTOR_DATASET_HOSTS=data.example"),
    ],
)
async def test_place_that_is_not_allowed_is_refused_at_once(
    dataset: dict[str, Any], words: str, nats_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "datasets"
    root.mkdir()
    (tmp_path / "secret.jsonl").write_text(LINES)
    (root / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    refused = await run(settings, spec_of(**dataset))

    assert isinstance(refused, Refused)
    assert words in refused.message
    assert (refused.path or "").startswith("$.benchmark.dataset")


@pytest.mark.parametrize(
    ("content", "words"), [(b"\x00\x00", "NUL byte"), (b'{"other": 1}', "no row of the dataset")]
)
async def test_file_that_cannot_be_used_fails_the_attempt(
    content: bytes, words: str, nats_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "datasets"
    root.mkdir()
    (root / "bad").write_bytes(content)
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    finished = await run(settings, spec_of(path="bad"))

    assert isinstance(finished, AttemptFinished)
    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert words in finished.failure.message


async def test_task_of_release_0_2_1_runs_with_its_dataset(nats_url: str, tmp_path: Path) -> None:
    rows = "".join(f"{number},a log of call {number}\n" for number in range(20))
    content = gzip.compress(f"id,prompt\n{rows}{rows}".encode())
    app = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content)

    app.router.add_get("/api_logs.csv.gz", answer)
    async with serving(app) as address:
        form = form_of(TASK_0_2_1.replace("https://example.com", address).encode())
        assert not form.mistakes
        task = msgspec.json.decode(form.body, type=TaskFile)
        settings = make_settings(
            nats_url, tmp_path, dataset_private_hosts=address.removeprefix("http://")
        )
        finished = await run(settings, load_spec(task.benchmark, "", BenchmarkTool.BUILTIN))

    assert isinstance(finished, AttemptFinished)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.benchmark is not None
    use = finished.benchmark.dataset
    assert use is not None
    assert (use.format, use.rows, use.used) == (DatasetFormat.CSV, 40, 20)
    assert use.dropped == {DropReason.DUPLICATE: 20}
    assert {level.scenario for level in finished.benchmark.levels} == {"D(3800,200)"}
    assert finished.benchmark.metrics.total_error_requests == 0


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_lengths_are_tokens_where_the_engine_counts(nats_url: str, tmp_path: Path) -> None:
    """By the real llama.cpp server: a long word is one word, and many tokens."""
    root = tmp_path / "datasets"
    root.mkdir()
    (root / "words.txt").write_text("the cat sat\nPneumonoultramicroscopicsilicovolcanoconiosis\n")
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    finished = await run(
        settings,
        spec_of(path="words.txt", min_input_tokens=6, max_output_tokens=4),
        parameters={"threads": 1},
        engine="llamacpp",
        model="smollm2-135m",
        timeout_seconds=120.0,
    )

    assert isinstance(finished, AttemptFinished)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.benchmark is not None
    use = finished.benchmark.dataset
    assert use is not None
    assert use.length_unit is LengthUnit.ENGINE_TOKENS
    assert (use.used, use.dropped) == (1, {DropReason.TOO_SHORT: 1})
    assert use.mean_input_tokens > 6


TRACE = "".join(
    json.dumps({"timestamp": 20 * n, "input_length": 12, "output_length": 3, "hash_ids": [n % 2]})
    + "\n"
    for n in range(8)
)


def spec_of_trace(path: str) -> BenchmarkSpec:
    return BenchmarkSpec(
        traffic_scenarios=("trace",),
        arrivals=("trace(2)",),
        tool=BenchmarkTool.BUILTIN,
        trace=TraceSpec(path=path, block_tokens=8),
    )


async def test_trace_is_sent_and_its_share_is_stored(nats_url: str, tmp_path: Path) -> None:
    root = tmp_path / "datasets"
    root.mkdir()
    (root / "t.jsonl.gz").write_bytes(gzip.compress(TRACE.encode()))
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    finished = await run(settings, spec_of_trace("t.jsonl.gz"))

    assert isinstance(finished, AttemptFinished)
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.benchmark is not None
    use = finished.benchmark.trace
    assert use is not None
    assert (use.requests, use.used, use.sessions) == (8, 8, 8)
    # Six of eight have had their block of eight tokens before.
    assert use.prefix_share == pytest.approx(6 * 8 / 96)
    [level] = finished.benchmark.levels
    assert level.num_completed_requests == 8
    assert level.prefix_cache is not None
    assert level.prefix_cache.trace_share == pytest.approx(use.prefix_share)
    # Of 96 tokens in all: a few more or less are several points.
    assert level.prefix_cache.asked_share == pytest.approx(use.prefix_share, abs=0.06)


async def test_bad_trace_is_refused_before_the_engine(nats_url: str, tmp_path: Path) -> None:
    root = tmp_path / "datasets"
    root.mkdir()
    (root / "t.jsonl").write_text(TRACE + TRACE)
    settings = make_settings(nats_url, tmp_path / "data", dataset_roots=str(root))

    finished = await run(settings, spec_of_trace("t.jsonl"))

    assert isinstance(finished, AttemptFinished)
    assert finished.failure is not None
    assert "sort the trace by its timestamp" in finished.failure.message
    refused = await run(settings, spec_of_trace("other.jsonl"))
    assert isinstance(refused, Refused)
    assert (refused.path or "").startswith("$.benchmark.trace")


@pytest.mark.long
async def test_uploads_reach_executors_without_a_shared_disk(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    """Two executors, each with a disk of its own; the gateway comes late, and is away again."""
    sha256 = hashlib.sha256(LINES.encode()).hexdigest()
    spec = spec_of(upload="chats", sha256=sha256)
    homes = [make_settings(nats_url, tmp_path / name) for name in ("a", "b")]
    file = tmp_path / "chats.jsonl"
    file.write_text(LINES)

    async with gateway(nats_url, postgres_dsn) as api, StewardClient(Address(api.url)) as client:
        await api.owners.answer(ListUploadUses, UploadUses(uses=()))
        await client.add_dataset(file, "chats")
    early = asyncio.ensure_future(run(homes[0], spec))
    # Nobody answers it yet: the executor asks again.
    await asyncio.sleep(3)
    async with gateway(nats_url, postgres_dsn) as api, StewardClient(Address(api.url)) as client:
        await api.owners.answer(ListUploadUses, UploadUses(uses=()))
        finished = [await early, await run(homes[1], spec)]
        await client.remove_dataset("chats")
        finished.append(await run(homes[0], spec))  # from its own cache
        missing = await run(make_settings(nats_url, tmp_path / "c"), spec)

    for end in finished:
        assert isinstance(end, AttemptFinished)
        assert end.outcome is AttemptOutcome.SUCCEEDED, end.failure
        assert end.benchmark is not None
        assert end.benchmark.dataset is not None
        assert (end.benchmark.dataset.sha256, end.benchmark.dataset.used) == (sha256, 8)
    assert isinstance(missing, AttemptFinished)
    assert missing.failure is not None
    assert "is not there any more" in missing.failure.message


async def test_pieces_of_another_file_are_not_used(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    spec = spec_of(upload="chats", sha256="0" * 64)
    settings = make_settings(nats_url, tmp_path)
    other = DatasetPiece(content=LINES.encode(), size_bytes=len(LINES))

    client = await nats.connect(nats_url)
    await Owners(client).answer(GetDatasetPiece, other)
    finished = await run(settings, spec)
    await client.close()

    assert isinstance(finished, AttemptFinished)
    assert finished.failure is not None
    assert f"expected a dataset with SHA-256 {'0' * 64}" in finished.failure.message
    assert [path.name for path in (settings.home / "datasets").iterdir()] == []
