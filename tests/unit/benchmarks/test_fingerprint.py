"""What is read of the host that sends a load, and of the engine's own word."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from schemas.task.fingerprint import Canary, LoadHost
from schemas.task.trust import RunInfo, RunSetting
from shared.benchmarks.fingerprint import read_engine_facts, read_load_host
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.verdicts.run_settings import (
    describe_canaries,
    describe_hosts,
    other_settings,
)
from tests.support.http_server import serving


async def engine_facts(pages: dict[str, Any]) -> Any:
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(pages[request.path])

    for path in pages:
        app.router.add_get(path, answer)
    async with serving(app) as url:
        return await read_engine_facts(Target(base_url=url, model_name="m"))


def test_processors_and_governors_are_read(tmp_path: Path) -> None:
    for number, governor in enumerate(("powersave", "powersave", "performance")):
        directory = tmp_path / f"cpu{number}" / "cpufreq"
        directory.mkdir(parents=True)
        (directory / "scaling_governor").write_text(f"{governor}\n")
    info, numa = tmp_path / "cpuinfo", tmp_path / "online"
    info.write_text("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: A CPU @ 2 GHz\n")
    numa.write_text("0-1\n")

    host = read_load_host(tmp_path, numa, info)

    assert (host.cpu_model, host.cpu_governor, host.numa_nodes) == (
        "A CPU @ 2 GHz",
        "performance, powersave",
        "0-1",
    )


def test_host_that_says_nothing_is_empty(tmp_path: Path) -> None:
    missing = tmp_path / "none"

    host = read_load_host(missing, missing, missing)

    assert host == LoadHost(cpu_count=host.cpu_count)


@pytest.mark.parametrize(
    ("pages", "version", "arguments"),
    [
        ({"/version": {"version": "0.11.0"}}, "0.11.0", {}),
        (
            {"/get_server_info": {"version": "0.5.4", "tp_size": 2, "api_key": "k", "x": [1]}},
            "0.5.4",
            {"version": "0.5.4", "tp_size": "2"},
        ),
        (
            {"/props": {"build_info": "b6000", "total_slots": 4, "default": {"n_ctx": 4096}}},
            "b6000",
            {"build_info": "b6000", "total_slots": "4", "default.n_ctx": "4096"},
        ),
    ],
)
async def test_engines_tell_version_and_arguments(
    pages: dict[str, Any], version: str, arguments: dict[str, str]
) -> None:
    facts = await engine_facts(pages)

    assert (facts.version, facts.arguments) == (version, arguments)


async def test_engine_without_such_pages_tells_nothing() -> None:
    assert await engine_facts({}) is None
    assert await engine_facts({"/version": ["not", "an", "object"]}) is None


async def test_arguments_are_bounded() -> None:
    facts = await engine_facts({"/props": {f"a{n}": "x" * 1000 for n in range(1000)}})

    assert len(facts.arguments) == 300
    assert {len(value) for value in facts.arguments.values()} == {200}


def runs(*settings: RunSetting) -> dict[int, RunInfo]:
    return {number: RunInfo(setting=setting) for number, setting in enumerate(settings, start=1)}


def test_runs_on_another_host_are_marked_and_compared() -> None:
    usual, other = RunSetting(cpu_model="A"), RunSetting(cpu_model="B")
    past = runs(usual, usual, other)

    assert describe_hosts(past) == ["experiments 3: measured with CPU B, most with A"]
    assert other_settings(past, [{}, {}, {}]) == {}


def test_governor_that_saves_power_is_marked_on_all() -> None:
    [sentence] = describe_hosts(runs(RunSetting(cpu_governor="powersave")))

    assert "powersave" in sentence


def test_servers_on_other_gpus_are_compared_all_the_same() -> None:
    past = runs(RunSetting(gpu_models=("H100",)), RunSetting(gpu_models=("A100",)))
    urls = [{"endpoint.url": "http://a:1"}, {"endpoint.url": "http://b:1"}]

    assert other_settings(past, urls) == {}
    assert other_settings(past, [{}, {}]) != {}


def canary(ttft_seconds: float, tpot_seconds: float = 0.01) -> Canary:
    return Canary(
        true_ttft_seconds=0.05,
        ttft_seconds=ttft_seconds,
        true_tpot_seconds=0.01,
        tpot_seconds=tpot_seconds,
    )


def test_tool_that_is_off_the_truth_is_named() -> None:
    [sentence] = describe_canaries([None, canary(0.051), canary(0.06)])

    assert "off by up to 20%" in sentence
    assert "60.0 ms" in sentence


def test_tool_that_measures_the_truth_is_not_named() -> None:
    assert describe_canaries([None, canary(0.051, 0.0102)]) == []
    assert describe_canaries([]) == []
