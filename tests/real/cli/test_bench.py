"""`bench` and `run_benchmark_job`: a benchmark without a platform, and with one that watches."""

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.cli.command_line import main
from shared.benchmarks.tools.adapter import ModelNotServed
from shared.client import aio_benchmarks, aio_telemetry, run_benchmark_job
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.errors import RefusedError
from shared.testing import eventually
from tests.support.http_server import serving
from tests.support.processes.command_line import run_command
from tests.support.worlds.gateway import NODE, a_node, gateway

SPEC: dict[str, Any] = {
    "traffic_scenarios": ["D(8,4)"],
    "max_requests_per_iteration": 4,
    "warmup_requests": 0,
    "tool": "builtin",
}


def a_server(**behaviour: Any) -> AbstractAsyncContextManager[str]:  # any field
    fast: dict[str, Any] = {"model": "m", "ttft_seconds": 0.002, "tpot_seconds": 0.0, "slots": 64}
    return serving(SimulatedEngine(Behaviour(**fast | behaviour)).app())


@pytest.fixture(autouse=True)
def no_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GPUSTEWARD_URL", "GPUSTEWARD_TOOLS_DIR", "GPUSTEWARD_GENAI_BENCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPUSTEWARD_DATA_DIR", str(tmp_path))


@pytest.mark.long
async def test_gpus_are_watched_while_platform_runs(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        gateway(nats_url, postgres_dsn) as api,
        a_node(nats_url, tmp_path),
        a_server(ttft_seconds=0.3) as url,
    ):
        monkeypatch.setenv("GPUSTEWARD_URL", api.url)
        await eventually(aio_telemetry.is_available)

        seen = await aio_benchmarks.run_benchmark_job(url, SPEC, [1])
        partly = await aio_benchmarks.run_benchmark_job(url, SPEC, [0, 7], node_id=NODE)

    assert seen["metrics"]["total_completed_requests"] == 4
    assert (seen["tool"], seen["simulated"]) == ("builtin", True)
    watched = seen["gpu_monitoring"]
    assert seen["gpu_monitoring_missing"] is None
    assert watched["monitoring_duration_seconds"] >= 1.2
    assert watched["sample_count"] >= 1
    assert list(watched["gpu_stats"]) == ["1"]
    utilization = watched["gpu_stats"]["1"]["utilization"]
    assert utilization["samples"] == watched["sample_count"]
    assert utilization["min"] <= utilization["mean"] <= utilization["max"]
    assert {"memory_used_mb", "temperature_c", "power_draw_w"} <= watched["gpu_stats"]["1"].keys()
    assert list(partly["gpu_monitoring"]["gpu_stats"]) == ["0"]
    assert partly["gpu_monitoring_missing"] == f"node {NODE} has no GPU 7"


async def test_without_a_platform_nothing_is_made_up() -> None:
    async with a_server() as url:
        # The plain function, in a thread as a script would have it.
        told = await asyncio.to_thread(run_benchmark_job, f"{url}/v1/", SPEC, [0])

    assert told["metrics"]["success_rate"] == 1.0
    assert told["gpu_monitoring"] is None
    assert "no platform runs" in told["gpu_monitoring_missing"]


async def test_what_cannot_be_measured_is_told_at_once() -> None:
    async with a_server() as url:
        with pytest.raises(ModelNotServed):
            await aio_benchmarks.run_benchmark_job(url, SPEC | {"model_name": "other"})
        with pytest.raises(RefusedError, match="unknown field 'scenarios'"):
            await aio_benchmarks.run_benchmark_job(url, {"scenarios": ["D(1,1)"]})


async def test_bench_measures_server_and_prints_levels() -> None:
    bench = partial(run_command, "bench", environment=os.environ)
    options = ("--scenario", "D(8,4)", "--max-requests", "4", "--tool", "builtin")
    async with a_server() as url, a_server(error_rate=1.0) as failing:
        plain, as_json, failed = await asyncio.gather(
            bench(url.removeprefix("http://"), *options, "--concurrency", "2"),
            bench(url, *options, "--concurrency", "1", "--concurrency", "2", "--json"),
            bench(failing, *options, "--warmup", "0"),
        )

    assert plain.code == 0, plain.err
    # So few requests may get marks as well.
    title, headings, row, remark, *_ = plain.out.splitlines()
    assert title.startswith("measured by builtin")
    assert "ttft ms" in headings
    assert row.split()[:3] == ["D(8,4)", "2", "4/4"]
    assert "simulated" in remark
    assert "level 1 of 1, D(8,4) at concurrency 2: measuring, 4 of 4 requests" in plain.err
    assert as_json.code == 0
    assert [level["num_concurrency"] for level in json.loads(as_json.out)["levels"]] == [1, 2]
    assert failed.code == 1
    assert "failed with 4 x 500" in failed.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["127.0.0.1:1"], 8, "nothing answers: Connect call failed"),
        (["127.0.0.1:1"], 8, "look whether it runs"),
        (["ftp://host"], 2, "expected a URL of a server"),
        (["h:1", "--scenario", "Q(3)"], 2, "a scenario like D(100,100)"),
        (["h:1", "--param", "temperature"], 2, "expected NAME=VALUE"),
        (["h:1", "--model", "m", "--scenario", "I(0,64)"], 2, "$.benchmark.traffic_scenarios"),
        (["h:1", "--model", "m", "--arrivals", "poisson(0)"], 2, "$.benchmark.arrivals[0]"),
        (["h:1", "--arrivals", "often"], 2, "arrivals"),
        (["h:1", "--model", "m", "--tool", "genai-bench"], 1, "`gpusteward bench install`"),
    ],
)
def test_the_command_says_what_to_do_next(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments])

    assert said in capsys.readouterr().err
    assert left.value.code == code


async def test_own_dataset_and_recorded_trace_are_sent(tmp_path: Path) -> None:
    meta = "'prompt_tokens': 40, 'completion_tokens': 3, 'cached_tokens': 32, 'e2e_latency': 0.1"
    log = tmp_path / "engine.log"
    log.write_text(
        "".join(
            f"[2026-02-13 09:29:{second}] Finish: obj=GenerateReqInput(rid='{second}'), "
            f"out={{'meta_info': {{{meta}}}}}\n"
            for second in range(30, 34)
        )
    )
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one two three\nfour five\n")
    trace = tmp_path / "trace.jsonl"
    size = ["--block-tokens", "512"]

    command = partial(run_command, environment=os.environ)
    recorded = await command("bench", "record-trace", str(log), *size, "--output", str(trace))
    assert recorded.code == 0, recorded.err
    assert "4 requests of SGLang in 3.0 s" in recorded.err
    async with a_server() as url:
        replayed = await command(
            *("bench", url, "--trace", str(trace), "--scenario", "trace", "--json"),
            *("--arrivals", "trace(20)", "--tool", "builtin"),
        )
        sent = await command(
            *("bench", url, "--dataset", str(prompts), "--scenario", "dataset", "--json"),
            *("--tool", "builtin", "--max-requests", "2"),
        )

    assert replayed.code == 0, replayed.err
    result = json.loads(replayed.out)
    assert (result["trace"]["requests"], result["levels"][0]["num_completed_requests"]) == (4, 4)
    assert result["levels"][0]["stats"]["num_input_tokens"]["mean"] == 40
    assert sent.code == 0, sent.err
    assert json.loads(sent.out)["dataset"]["rows"] == 2


async def test_log_without_requests_is_refused_in_words(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("nothing of note\n")

    command = partial(run_command, "bench", "record-trace", environment=os.environ)
    refused = await command(str(log))
    unknown = await command(str(log), "--engine", "other")

    assert refused.code == unknown.code == 2
    assert "expected a log of SGLang or vLLM" in refused.err
    assert "expected one of" in unknown.err
