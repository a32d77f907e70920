"""Each tool against an engine that shows one certificate, and against one that shows another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.aiperf import command as aiperf
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.genai_bench import command as genai_bench
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.tools.adapter import BenchmarkFailed, ServerUnreachable, Target
from shared.benchmarks.tools.environment import Tool
from shared.benchmarks.tools.installed_tool import InstalledTool
from shared.benchmarks.tools.present import ADAPTERS, run_benchmark
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.tls.authority import make_own_pair
from shared.tls.contexts import make_server_context
from tests.support.benchmark_tools import require_tool
from tests.support.http_server import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
MODEL = "simulated"


def write_pair(directory: Path, host: str) -> tuple[Path, Path]:
    directory.mkdir()
    key, certificate = make_own_pair("engine", [host], timedelta(hours=1))
    certificate_path, key_path = directory / "tls.crt", directory / "tls.key"
    certificate_path.write_bytes(certificate)
    key_path.write_bytes(key)
    return certificate_path, key_path


@asynccontextmanager
async def engine_over_tls(
    directory: Path, host: str = "localhost"
) -> AsyncIterator[tuple[str, Path]]:
    """Its base URL and its certificate."""
    certificate_path, key_path = write_pair(directory, host)
    engine = SimulatedEngine(Behaviour(ttft_seconds=0.002, tpot_seconds=0.0005))
    context = make_server_context(certificate_path, key_path)
    async with serving(engine.app(), tls=context) as base_url:
        yield base_url.replace("127.0.0.1", "localhost"), certificate_path


def spec_of(tool: BenchmarkTool) -> BenchmarkSpec:
    return BenchmarkSpec(
        tool=tool,
        traffic_scenarios=("D(16,8)",),
        num_concurrency=(2,),
        max_requests_per_level=6,
        max_time_per_level_seconds=30,
        warmup_requests=0,
    )


@pytest.mark.parametrize("tool", list(ADAPTERS))
async def test_tool_measures_over_tls_and_refuses_another(
    tool: BenchmarkTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = ADAPTERS[tool]
    if isinstance(adapter, InstalledTool):
        require_tool(adapter.tool, monkeypatch)
    async with (
        engine_over_tls(tmp_path / "own") as (url, certificate),
        engine_over_tls(tmp_path / "another") as (_, other),
    ):
        good = Target(base_url=url, model_name=MODEL, certificate=certificate)
        result = await run_benchmark(spec_of(tool), good, directory=tmp_path / "good")
        bad = Target(base_url=url, model_name=MODEL, certificate=other)
        with pytest.raises(BenchmarkFailed):
            await run_benchmark(spec_of(tool), bad, directory=tmp_path / "bad")

    assert result.metrics.total_error_requests == 0
    assert result.metrics.total_requests >= 6


@pytest.mark.parametrize(("tool", "module"), [(GENAI_BENCH, genai_bench), (AIPERF, aiperf)])
async def test_tool_itself_refuses_another_certificate(
    tool: Tool, module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own requests before the load trust the right one, the tool's processes another."""
    require_tool(tool, monkeypatch)
    label = BenchmarkTool(tool.name)
    made = module.environment
    async with (
        engine_over_tls(tmp_path / "own") as (url, certificate),
        engine_over_tls(tmp_path / "another") as (_, other),
    ):

        def environment(environ: Any, target: Target, **rest: Any) -> dict[str, str]:
            return made(environ, replace(target, certificate=other), **rest)  # type: ignore[no-any-return]  # of a module

        monkeypatch.setattr(module, "environment", environment)
        target = Target(base_url=url, model_name=MODEL, certificate=certificate)
        try:
            result = await run_benchmark(spec_of(label), target, directory=tmp_path / "run")
        except BenchmarkFailed:
            return

    assert result.metrics.total_completed_requests == 0
    assert result.metrics.total_error_requests > 0


async def test_other_certificate_is_refused_at_any_name(tmp_path: Path) -> None:
    async with (
        engine_over_tls(tmp_path / "own", "elsewhere.example") as (url, certificate),
        engine_over_tls(tmp_path / "another") as (_, other),
    ):
        async with ChatServer(base_url=url, model_name=MODEL, certificate=certificate) as server:
            assert await server.only_model() == MODEL
        for trusted in (other, None):
            async with ChatServer(base_url=url, model_name=MODEL, certificate=trusted) as server:
                with pytest.raises(ServerUnreachable, match=r"(?i)certificate"):
                    await server.only_model()


async def test_engine_of_tls_answers_no_plain_request(tmp_path: Path) -> None:
    async with engine_over_tls(tmp_path / "own") as (url, _):
        _, _, port = url.rpartition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()

    assert b"HTTP/" not in answer
