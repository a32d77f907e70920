"""The commands that we print, typed into a shell, send the load that they are said to send."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.arrivals import Load
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.genai_bench.tokenizer import from_gguf
from shared.benchmarks.same_load import make_load_commands
from shared.benchmarks.tools.adapter import Target
from shared.engines.llamacpp.weights import locate_weights
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.waiting import within
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving
from tests.support.paths import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
NO_HUB = "http://127.0.0.1:1"
REQUESTS, WARMUP, AT_ONCE, OUTPUT_TOKENS, INPUT_TOKENS = 12, 2, 3, 8, 40


@pytest.mark.parametrize(
    ("tool", "warm"), [("builtin", WARMUP), ("genai-bench", 0), ("aiperf", WARMUP)]
)
async def test_printed_command_sends_the_level_it_names(
    tool: str, warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = [require_tool(each, monkeypatch).parent for each in (GENAI_BENCH, AIPERF)]
    programs = [ROOT / ".venv" / "bin", *installed]
    bodies: list[dict[str, Any]] = []
    in_flight = most_in_flight = 0

    @web.middleware
    async def watch(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal in_flight, most_in_flight
        if not request.path.endswith("/completions"):
            return await handler(request)  # type: ignore[no-any-return]
        bodies.append(await request.json())
        in_flight += 1
        most_in_flight = max(most_in_flight, in_flight)
        try:
            return await handler(request)  # type: ignore[no-any-return]
        finally:
            in_flight -= 1

    app = SimulatedEngine(Behaviour(model="m", slots=8)).app()
    app.middlewares.append(watch)
    tokenizer = str(from_gguf(locate_weights("smollm2-135m"), tmp_path / "tokenizer"))
    spec = BenchmarkSpec(
        max_requests_per_level=REQUESTS, warmup_requests=WARMUP, model_tokenizer=tokenizer
    )
    async with serving(app) as base_url:
        commands = make_load_commands(
            spec,
            f"D({INPUT_TOKENS},{OUTPUT_TOKENS})",
            Load(AT_ONCE),
            Target(base_url=base_url, model_name="m"),
        )
        [command] = [each.command for each in commands if each.tool == tool]
        assert command is not None
        await run_in_shell(command, programs, tmp_path)

    sizes = [body.get("max_tokens") or body.get("max_completion_tokens") for body in bodies]
    # Load goes on until the last measured request is answered; genai-bench stops a while later.
    assert sizes.count(OUTPUT_TOKENS) >= REQUESTS + warm
    assert most_in_flight == AT_ONCE
    prompts = [str(body["messages"][-1]["content"]) for body in bodies[warm:]]
    longest = max(len(prompt.split()) for prompt in prompts)
    assert longest >= INPUT_TOKENS / 3, prompts


@pytest.mark.parametrize(
    ("tool", "scenario", "at_once"),
    [
        *(
            (tool, scenario, 2)
            for tool in ("builtin", "aiperf")
            for scenario in ("E(40)", "R(30,9)")
        ),
        *((tool, "I(64,48,2)", 2) for tool in ("builtin", "aiperf")),
        *(("genai-bench", scenario, 1) for scenario in ("E(40)", "R(30,9)")),
    ],
)
async def test_printed_command_sends_the_items_it_names(
    tool: str, scenario: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = [require_tool(each, monkeypatch).parent for each in (GENAI_BENCH, AIPERF)]
    bodies: list[tuple[str, dict[str, Any]]] = []

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST":
            bodies.append((request.path, await request.json()))
        return await handler(request)  # type: ignore[no-any-return]

    app = SimulatedEngine(Behaviour(model="m", slots=8)).app()
    app.middlewares.append(record)
    tokenizer = str(from_gguf(locate_weights("smollm2-135m"), tmp_path / "tokenizer"))
    spec = BenchmarkSpec(
        traffic_scenarios=(scenario,),
        batch_size=1 if scenario.startswith("I") else 3,
        max_requests_per_level=REQUESTS,
        warmup_requests=WARMUP,
        model_tokenizer=tokenizer,
    )
    async with serving(app) as base_url:
        target = Target(base_url=base_url, model_name="m")
        commands = make_load_commands(spec, scenario, Load(at_once), target)
        [command] = [each.command for each in commands if each.tool == tool]
        assert command is not None
        await run_in_shell(command, [ROOT / ".venv" / "bin", *installed], tmp_path)

    assert len(bodies) >= REQUESTS
    for path, body in bodies[WARMUP:]:
        if scenario.startswith("E"):
            assert (path, len(body["input"])) == ("/v1/embeddings", 3)
        elif scenario.startswith("R"):
            assert (path, len(body["documents"])) == ("/v1/rerank", 3)
            assert body["query"]
        else:
            parts = [part["type"] for part in body["messages"][-1]["content"]]
            assert (path, parts.count("image_url")) == ("/v1/chat/completions", 2)


async def run_in_shell(command: str, programs: list[Path], directory: Path) -> None:
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    log = directory / "output.log"
    # Into a file: helpers of a tool that live longer would keep a pipe open.
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=directory,
            env={
                **os.environ,
                "PATH": path,
                "HOME": str(directory),
                "HF_ENDPOINT": NO_HUB,
            },
        )
        try:
            async with within(240):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 0, f"{command}\n{log.read_text()[-3000:]}"
