"""User stories over the whole platform: every service a process, every seam crossed."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import psutil
import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from shared.client import (
    DockerController,
    check_gpu_availability,
    estimate_gpu_requirements,
    get_gpu_monitor,
    wait_for_gpu_availability,
)
from shared.ids import new_id
from shared.testing import NatsServer, eventually, run_apart, short_directory
from tests.support.idle_clock import idle_time
from tests.support.paths import ROOT
from tests.support.ports import free_port, is_open
from tests.support.processes.platform import (
    PlatformProcess,
    assert_sound,
    marked_processes,
    quick_task,
)
from tests.support.processes.secret_search import contents_below, everything_stored, is_in

SERVICES = ("telemetry", "scheduler", "orchestrator", "executor", "results", "gateway")
COMPACT = ("services", "executor", "scheduler-2")
HF_TOKEN = "hf_planted_for_engines"
TOKEN = "planted-token-of-a-client"


@pytest.fixture(scope="module")
def running_platform() -> Iterator[PlatformProcess]:
    """One platform on a simulated fleet for all tests; nothing of it is left afterwards."""
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data",
            environment={"HF_TOKEN": HF_TOKEN, "GPUSTEWARD_LOCAL_TOKEN": "always"},
        )
        try:
            run_apart(running.start())
            installation = str(running.directory.installation_id())
            yield running
        finally:
            run_apart(running.stop())
        assert marked_processes(installation) == []


@pytest.fixture
async def platform(running_platform: PlatformProcess) -> PlatformProcess:
    """The platform, whole again after what an earlier test did to it."""
    await eventually(running_platform.is_ready, within_seconds=60, what="a whole platform")
    return running_platform


async def test_task_runs_to_measured_results(platform: PlatformProcess) -> None:
    task = quick_task("first")
    # Windows longer than a sampling interval.
    task["parameters"] = {"ttft-seconds": [0.025, 0.05], "tpot-seconds": [0.01]}
    task_id = await platform.submit(task)

    view = await platform.until_finished(task_id)

    assert view["state"] == "completed"
    experiments = await platform.experiments(task_id)
    assert [e["state"] for e in experiments] == ["succeeded"] * 2
    for experiment in experiments:
        monitoring = experiment["gpu_monitoring"]
        assert monitoring["simulated"] is True
        assert monitoring["sample_count"] >= 1
        assert set(monitoring["gpu_stats"]) == {str(i) for i in experiment["gpu_info"]["indices"]}
        # Up to half of them may have been a start that was no steady state.
        assert experiment["metrics"]["total_completed_requests"] >= 15
    scores = {e["experiment_id"]: e["objective_score"] for e in experiments}
    assert view["best_experiment_id"] == min(scores, key=lambda key: scores[key])
    await assert_sound(platform, task_id)


@pytest.mark.long
async def test_two_experiments_share_one_gpu(
    platform: PlatformProcess,
) -> None:
    task = quick_task("beside", gpus={"shares": 0.5})
    task["parameters"] = {"ttft-seconds": [0.005, 0.01]}
    task["benchmark"] |= {"max_requests_per_iteration": 4_000, "max_time_per_iteration": 0.05}
    task_id = await platform.submit(task)

    async def has_two() -> bool:
        _, found = await platform.request("GET", "/api/v1/gpus")
        shared = [gpu for gpu in found["gpus"] if len(gpu.get("holders", ())) == 2]
        view = await platform.task(task_id)
        return bool(shared) and view["experiments_by_state"].get("running") == 2

    await eventually(has_two, within_seconds=30, what="two experiments measured on one GPU")
    view = await platform.until_finished(task_id)

    assert view["state"] == "completed"
    experiments = await platform.experiments(task_id)
    assert {e["state"] for e in experiments} == {"succeeded"}, experiments
    [device] = {tuple(e["gpu_info"]["indices"]) for e in experiments}
    assert all(set(e["gpu_monitoring"]["gpu_stats"]) == set(map(str, device)) for e in experiments)
    await assert_sound(platform, task_id)


@pytest.mark.long
@pytest.mark.parametrize("victim", SERVICES)
async def test_task_completes_with_a_killed_service(platform: PlatformProcess, victim: str) -> None:
    task_id = await platform.submit(quick_task("victim"))

    async def is_measuring() -> bool:
        view = await platform.task(task_id)
        return bool(view.get("experiments_by_state", {}).get("running"))

    await eventually(is_measuring)
    platform.kill(victim)

    view = await platform.until_finished(task_id)
    assert view["state"] == "completed"
    await assert_sound(platform, task_id)


@pytest.mark.long
async def test_task_completes_with_killed_compact_services() -> None:
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data", arguments=("--simulate", "--compact"))
        try:
            await platform.start()
            task_id = await platform.submit(quick_task("compact"))

            async def is_measuring() -> bool:
                view = await platform.task(task_id)
                return bool(view.get("experiments_by_state", {}).get("running"))

            await eventually(is_measuring)
            platform.kill("services")
            await eventually(platform.is_ready, within_seconds=60, what="services that run again")

            view = await platform.until_finished(task_id)
            assert view["state"] == "completed"
            assert set(platform.states()) == {*COMPACT, "nats", "postgres"}
            await assert_sound(platform, task_id)
        finally:
            await platform.stop()


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_mcp_agent_reserves_and_runs_a_task(
    platform: PlatformProcess,
) -> None:
    """By a real MCP client over stdio, then what it did seen by another over HTTP."""
    # Takes a second to import, in every process that collects tests.
    from mcp import Client, StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    token = platform.directory.read_admin_token()
    assert token is not None
    environment = {"GPUSTEWARD_DATA_DIR": str(platform.data_dir), "PYTHONPATH": str(ROOT)}
    command = ["-m", "services.cli", "mcp"]
    port = free_port()
    task = quick_task("agents")
    task["optimization"]["max_attempts"] = 1
    task["optimization"]["timeout_per_iteration"] = 120
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--http", "--port", str(port)),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.DEVNULL,
    )
    server = StdioServerParameters(
        command=sys.executable,
        args=[*command, "--gpu-hours", "2"],
        env={**environment, "GPUSTEWARD_TOKEN": token},
    )
    try:
        async with Client(server) as agent:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                result = await agent.call_tool(name, arguments)
                assert not result.is_error, result.content
                assert isinstance(result.structured_content, dict)
                return result.structured_content

            dry = await call("reserve_gpus", request={"gpus": 1})
            held = await call("reserve_gpus", request={"gpus": 1}, dry_run=False, wait_seconds=30)
            known = {key: held["reservation"][key] for key in ("reservation_id", "epoch")}
            renewed = await call("renew_reservation", **known, dry_run=False)
            released = await call(
                "release_reservation", reservation_id=known["reservation_id"], dry_run=False
            )
            submitted = await call("submit_task", task=task, dry_run=False)
            task_id = submitted["task"]["task_id"]
            finished = await platform.until_finished(task_id)
        await eventually(lambda: is_open(port), within_seconds=60, what="an open port")
        async with (
            create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(
                streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            ) as reader,
        ):
            compared = await reader.call_tool("compare_experiments", {"task_id": task_id})
    finally:
        serving.terminate()
        await serving.wait()

    assert (dry["dry_run"], dry["reservation"], dry["budget"]["committed"]) == (True, None, 0.0)
    assert dry["availability"]["type"] == "scheduler.availability_view"
    assert held["reservation"]["state"] == "granted"
    assert held["budget"]["committed"] == pytest.approx(1 / 6)  # 600 s of one GPU
    assert renewed["reservation"]["state"] == "active"
    assert released["budget"]["committed"] < renewed["budget"]["committed"]
    assert submitted["longest_gpu_hours"] == pytest.approx(4 * 120 / 3600)
    assert finished["state"] == "completed"
    assert isinstance(compared.structured_content, dict)
    assert len(compared.structured_content["experiments"]) == 4


@pytest.mark.long
async def test_what_people_ask_waits_for_killed_schedulers(platform: PlatformProcess) -> None:
    names = ("scheduler", "scheduler-2")
    first = {platform.pid_of(name) for name in names}
    for name in names:
        platform.kill(name)

    listed, reserved = await asyncio.gather(
        platform.command("reservations"),
        platform.command("reserve", "--gpus", "1", "--wait", "30", "--json"),
    )

    assert (listed[0], listed[2]) == (0, "")
    assert reserved[0] == 0, reserved
    assert {platform.pid_of(name) for name in names} - first - {None}
    reservation_id = json.loads(reserved[1])["reservation_id"]
    await platform.request("DELETE", f"/api/v1/reservations/{reservation_id}")


@pytest.mark.long
async def test_task_completes_without_the_bus_store(
    platform: PlatformProcess,
) -> None:
    task_id = await platform.submit(quick_task("store"))
    await asyncio.sleep(1.0)  # anywhere in the middle

    pid = platform.pid_of("nats")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    store = platform.directory.nats / "jetstream"
    assert store.is_dir(), list(platform.directory.nats.iterdir())
    remove_tree(store)
    os.kill(pid, signal.SIGKILL)

    view = await platform.until_finished(task_id)
    assert view["state"] == "completed"
    await assert_sound(platform, task_id)


@pytest.mark.long
async def test_task_completes_over_postgres_restart(platform: PlatformProcess) -> None:
    task_id = await platform.submit(quick_task("postgres"))
    await asyncio.sleep(1.0)  # anywhere in the middle

    platform.kill("postgres", signal.SIGINT)

    view = await platform.until_finished(task_id)
    assert view["state"] == "completed"
    await assert_sound(platform, task_id)


async def test_cancel_frees_the_gpu_within_5_s(
    platform: PlatformProcess,
) -> None:
    task = quick_task("to-cancel")
    task["benchmark"] |= {"max_requests_per_iteration": 100_000, "max_time_per_iteration": 1}
    task["parameters"] = {"ignore-sigterm": [True]}
    task_id = await platform.submit(task)

    async def is_running() -> bool:
        view = await platform.task(task_id)
        return bool(view.get("experiments_by_state", {}).get("running"))

    def started_engines() -> list[psutil.Process]:
        marked = marked_processes(str(platform.directory.installation_id()))
        return [process for process in marked if is_engine(process)]

    await eventually(is_running)
    # It is told before its process is the engine's program.
    await eventually(lambda: bool(started_engines()))
    engines = started_engines()

    async def all_free() -> bool:
        _, body = await platform.request("GET", "/api/v1/gpus")
        return all(gpu["state"] == "free" for gpu in body["gpus"])

    with idle_time(timers=False) as clock:
        began = clock()
        status, _ = await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {})
        assert status in {200, 202}
        await eventually(lambda: not any(p.is_running() for p in engines), within_seconds=20)
        await eventually(all_free, within_seconds=20)
        # Of 5 s: it misses what passes while a service polls; the grace of the engine is 2 s.
        assert clock() - began < 4
    view = await platform.until_finished(task_id, within_seconds=45)
    assert view["state"] == "cancelled"
    assert {e["state"] for e in await platform.experiments(task_id)} == {"cancelled"}


@pytest.mark.long
async def test_waiting_request_learns_its_start(
    platform: PlatformProcess,
) -> None:
    task = quick_task("in-the-way", model={"id_or_path": "a-model-never-run-before"})
    task["parameters"] = {"start-delay-seconds": [50]}
    task_id = await platform.submit(task)

    async def holds_a_gpu() -> bool:
        view = await platform.task(task_id)
        return bool(view.get("experiments_by_state", {}).get("running"))

    await eventually(holds_a_gpu)
    _, body = await platform.request("GET", "/api/v1/gpus")
    everything = await reserve(platform, gpus=len(body["gpus"]))
    short = await reserve(platform, gpus=1, expected_duration_seconds=20)
    long = await reserve(platform, gpus=1, expected_duration_seconds=3600)

    _, head = await platform.request("GET", f"/api/v1/reservations/{everything}/explain")
    _, granted = await platform.request("GET", f"/api/v1/reservations/{short}?wait_seconds=10")
    _, waiting = await platform.request("GET", f"/api/v1/reservations/{long}")

    assert head["expected_start_at"] is not None
    assert granted["state"] in {"granted", "active"}
    assert waiting["state"] == "queued"
    for withdrawn in (everything, long, short):
        epoch = f"?epoch={granted['epoch']}" if withdrawn == short else ""
        await platform.request("DELETE", f"/api/v1/reservations/{withdrawn}{epoch}")
    await platform.request("POST", f"/api/v1/tasks/{task_id}/cancel", {})
    await platform.until_finished(task_id)


async def reserve(platform: PlatformProcess, **request: Any) -> str:
    """The id of a new reservation, which may wait."""
    status, body = await platform.request(
        "POST", "/api/v1/reservations", {"holder": "somebody", "request": request}
    )
    assert status in {201, 202}, body
    return str(body["reservation_id"])


@pytest.mark.long
async def test_exec_is_told_to_give_way(
    platform: PlatformProcess,
) -> None:
    _, found = await platform.request("GET", "/api/v1/gpus")
    uuid = found["gpus"][0]["uuid"]
    place = ("--node", found["gpus"][0]["node_id"], "--require", f"gpu_uuid={uuid}")
    running = await platform.start_command(
        *("exec", *place, "--gpus", "1", "--preemptible", "--ttl", "600"),
        *("--", "sh", "-c", "echo runs; exec sleep 300"),
    )
    assert running.stdout is not None
    assert running.stderr is not None
    waiting, said = str(new_id()), ""
    request = {"device_uuids": [uuid], "priority": 10}
    body = {"reservation_id": waiting, "holder": "more important", "request": request}
    try:
        async with asyncio.timeout(60):
            assert await running.stdout.readline() == b"runs\n"
        status, _ = await platform.request("POST", "/api/v1/reservations", body)
        async with asyncio.timeout(60):
            while "has to stop by" not in said:
                said = (await running.stderr.readline()).decode()
                assert said, "the command ended without a word"
    finally:
        with suppress(ProcessLookupError):
            running.terminate()
        code = await running.wait()
        await platform.request("DELETE", f"/api/v1/reservations/{waiting}")

    assert status == 201
    assert said.startswith("gpusteward: the reservation is active, but it has to stop by ")
    assert said.endswith(f" UTC for reservation {waiting}, which has a higher priority\n")
    assert code == 128 + signal.SIGTERM


async def test_second_up_on_data_directory_is_refused(platform: PlatformProcess) -> None:
    code, _, err = await platform.command("up")

    assert code == EXIT_CODE[ErrorCode.CONFLICT]
    assert platform.process is not None
    assert f"{platform.data_dir} is held by process {platform.process.pid}" in err
    assert "Traceback" not in err


async def test_without_token_only_login_page_is_readable(
    platform: PlatformProcess,
) -> None:
    """Every command of these tests finds the token by itself."""
    found = {}
    async with aiohttp.ClientSession() as session:
        for path in ("/docs", "/healthz", "/readyz", "/metrics", "/api/v1/gpus", "/ws/metrics"):
            async with session.get(platform.url + path) as response:
                found[path] = response.status

    assert found.pop("/docs") == found.pop("/healthz") == 200
    assert set(found.values()) == {401}


@pytest.mark.long
async def test_a_second_machine_joins(platform: PlatformProcess) -> None:
    """In another data directory, because it is another machine's; without GPUs, which would be
    missing when it has gone.
    """
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    code, made, _ = await platform.command("agent-credentials", "beta")
    assert code == 0
    with short_directory() as directory:
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli", "agent"),
            *("--data-dir", str(directory / "data")),
            *("--nats", str(endpoint.nats_url)),
            *("--credentials", made.strip()),
            env={**os.environ, "GPUSTEWARD_TELEMETRY_SOURCE": "none"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

        async def has_joined() -> bool:
            _, found = await platform.request("GET", "/api/v1/nodes")
            return any(node["node_id"] == "beta" and node["runtimes"] for node in found["nodes"])

        try:
            await eventually(has_joined, within_seconds=45, every_seconds=0.3)
            assert agent.stdout is not None
            said = b""
            async with asyncio.timeout(45):
                while b"this machine has joined" not in said:
                    said += await agent.stdout.readline()
        finally:
            agent.terminate()
            await agent.communicate()

    assert f"this machine has joined {endpoint.nats_url}" in said.decode()


async def test_a_task_is_validated_but_not_stored(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    path = tmp_path / "task.json"
    path.write_text(json.dumps(quick_task("validated")))

    code, out, _ = await platform.command("validate", str(path))
    _, stored = await platform.request("GET", "/api/v1/tasks")

    assert code == 0
    assert "4 experiments of 4" in out
    assert "validated" not in {task["task_name"] for task in stored["tasks"]}


async def test_a_bad_task_is_refused_with_its_field(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    bad = quick_task("bad")
    bad["optimization"]["strategy"] = "guessing"
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(bad))

    code, _, err = await platform.command("submit", str(path))

    assert code == EXIT_CODE[ErrorCode.BAD_REQUEST]
    assert "$.optimization.strategy" in err


async def test_task_is_submitted_shown_and_cancelled(
    platform: PlatformProcess, tmp_path: Path
) -> None:
    path = write_long_task(tmp_path, "commanded")
    code, out, err = await platform.command("submit", str(path), "--json")
    assert code == 0, err
    task_id = json.loads(out)["task_id"]

    again = await platform.command("submit", str(path))
    cancelled = await platform.command("cancel", task_id[-12:], "--yes")
    shown = await platform.command("show", task_id[-12:])

    assert again[0] == EXIT_CODE[ErrorCode.NAME_TAKEN]
    assert cancelled[:2] == (0, "task commanded is cancelled; nothing of it runs any more\n")
    assert "cancelled" in shown[1]


@pytest.mark.long
async def test_interrupted_run_cancels_its_task(platform: PlatformProcess, tmp_path: Path) -> None:
    process = await platform.start_command("run", str(write_long_task(tmp_path, "interrupted")))
    assert process.stdout is not None
    async with asyncio.timeout(45):
        while b"measuring" not in (line := await process.stdout.readline()):
            assert line, await process.communicate()

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert process.returncode == 130
    assert "cancelling the task; press Ctrl-C again to leave at once" in err.decode()
    assert "cancelled: 0 of 1 experiments succeeded" in out.decode()
    assert platform.directory.read_endpoint() is not None


def write_long_task(tmp_path: Path, name: str) -> Path:
    """One experiment that would measure for minutes."""
    task = quick_task(name, parameters={"ttft-seconds": [1.0], "tpot-seconds": [0.1]})
    task["benchmark"] |= {"max_requests_per_iteration": 1000, "max_time_per_iteration": 5}
    task["optimization"]["timeout_per_iteration"] = 400
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(task))
    return path


async def test_a_command_runs_on_reserved_gpus(platform: PlatformProcess) -> None:
    script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES']); raise SystemExit(5)"

    code, out, err = await platform.command(
        "exec", "--gpus", "1", "--", sys.executable, "-c", script
    )
    _, listed, _ = await platform.command("reservations", "--json")
    _, gpus, _ = await platform.command("gpus", "--json")

    assert code == 5, err
    assert "the reserved GPUs are simulated" in err
    assert out.strip() in {gpu["uuid"] for gpu in json.loads(gpus)["gpus"]}
    assert json.loads(listed)["reservations"][0]["state"] == "released"


def as_tuning_scripts_do() -> dict[str, Any]:
    """The examples of the people whose scripts these names are, as they stand in their pages."""
    gpu_monitor = get_gpu_monitor()
    snapshot = gpu_monitor.query_gpus(use_cache=False)
    assert gpu_monitor.is_available()
    assert snapshot is not None
    gpu_monitor.start_monitoring(interval_seconds=0.2)
    time.sleep(1.0)
    stats = gpu_monitor.stop_monitoring()
    assert stats is not None
    controller = DockerController(docker_model_path="/mnt/data/models", verbose=True)
    task_config = {
        "model": {"id_or_path": "llama-3-70b"},
        "parameters": {"tp-size": [1, 2, 4], "pp-size": [1], "dp-size": [1]},
    }
    return {
        "gpus": [f"GPU {gpu.index}: {gpu.memory_used_mb} MB" for gpu in snapshot.gpus],
        "available": gpu_monitor.get_available_gpus(min_memory_mb=8000, max_utilization=50),
        "stats": {
            index: f"{seen['utilization']['mean']:.1f} {seen['memory_used_mb']['mean']:.0f}"
            for index, seen in stats["gpu_stats"].items()
        },
        "selected": controller.select_gpus_for_task(required_gpus=2, min_memory_mb=10000),
        "estimate": estimate_gpu_requirements(task_config),
        "check": check_gpu_availability(required_gpus=4, min_memory_mb=10000),
        "wait": wait_for_gpu_availability(
            required_gpus=2, min_memory_mb=10000, timeout_seconds=5, check_interval=1
        ),
    }


async def test_tuning_script_examples_run_as_written(
    platform: PlatformProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_DATA_DIR", str(platform.data_dir))

    said = await asyncio.to_thread(as_tuning_scripts_do)
    with pytest.raises(RuntimeError, match="expected 3 GPUs"):
        await asyncio.to_thread(DockerController().select_gpus_for_task, required_gpus=3)

    assert len(said["gpus"]) == len(said["stats"]) == 2
    assert sorted(said["selected"]) == sorted(said["available"]) == [0, 1]
    assert said["estimate"] == (4, 20_000)
    assert (said["check"][0], said["wait"][0]) == (False, True)


async def test_what_waits_is_explained_and_withdrawn(platform: PlatformProcess) -> None:
    _, found = await platform.request("GET", "/api/v1/gpus")
    count = len(found["gpus"])
    code, out, err = await platform.command("reserve", "--gpus", str(count), "--json")
    assert code == 0, err
    held = json.loads(out)["reservation_id"]
    waiting = await platform.start_command("reserve", "--gpus", "1", "--wait", "30", "--json")
    queued: list[dict[str, Any]] = []

    async def is_queued() -> bool:
        _, body = await platform.request("GET", "/api/v1/reservations")
        queued[:] = [view for view in body["reservations"] if view["state"] == "queued"]
        return bool(queued)

    try:
        await eventually(is_queued, every_seconds=0.2)
        (view,) = queued
        explained = await platform.command("why", str(view["reservation_id"]))
    finally:
        released = await platform.command("release", held)
    out_bytes, _ = await waiting.communicate()

    assert "position 1 of 1" in explained[1]
    assert explained[1].count("held") >= count
    assert released[0] == 0
    granted = json.loads(out_bytes)
    assert (granted["state"], len(granted["devices"])) == ("granted", 1)
    assert (await platform.command("cancel", str(view["reservation_id"])))[0] == 0


async def test_service_login_reads_no_other_tables(
    platform: PlatformProcess,
) -> None:
    def login_of(name: str) -> str | None:
        pid = platform.pid_of(name)
        assert pid is not None
        return psutil.Process(pid).environ().get("GPUSTEWARD_POSTGRES_DSN")

    tables = {
        "scheduler": "scheduler.reservation",
        "orchestrator": "orchestrator.task",
        "results": "results.tick",
        "gateway": "gateway.event",
    }
    for name, own in tables.items():
        connection = await asyncpg.connect(login_of(name))
        await connection.fetch(f"SELECT * FROM {own} LIMIT 1")
        for foreign in set(tables.values()) - {own}:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT * FROM {foreign} LIMIT 1")
        await connection.close()
    assert (login_of("telemetry"), login_of("executor")) == (None, None)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_no_secret_is_where_others_look(platform: PlatformProcess, tmp_path: Path) -> None:
    """Nor in what is left of the tests before this one."""
    task = quick_task("secrets", parameters={})
    task_id = await platform.submit(task)
    asked = (
        ("POST", "/api/v1/login", {"token": TOKEN}),
        ("POST", f"/api/v1/tasks?access_token={TOKEN}", task),
        ("GET", f"/sse/metrics?rate=0&access_token={TOKEN}", None),
        ("GET", f"/nothing?access_token={TOKEN}", None),
    )
    headers = {"Authorization": f"Bearer {TOKEN}", "Cookie": f"gpusteward={TOKEN}"}
    said = [await platform.request(*each, headers=headers) for each in asked]
    arguments: list[list[str]] = []

    async def is_over() -> bool:
        for process in marked_processes(str(platform.directory.installation_id())):
            with suppress(psutil.Error):  # it may have ended
                arguments.append(process.cmdline())
        return (await platform.task(task_id)).get("state") == "completed"

    await eventually(is_over, within_seconds=120, every_seconds=0.2, what="the task's end")
    executor = platform.pid_of("executor")
    assert executor is not None
    own = platform.directory.read_admin_token()
    assert own is not None
    of_its_owner = {
        platform.data_dir / "endpoint.json",
        platform.directory.admin_token_path,
        platform.data_dir / "postgres" / "passwords.json",
    }
    passwords = json.loads((platform.data_dir / "postgres" / "passwords.json").read_text()).values()
    places: dict[str, object] = {
        "process list": arguments,
        "answers": [said, await platform.experiments(task_id)],
        "doctor": await platform.command("doctor"),
        "export": await platform.command("export", "task", task_id, str(tmp_path / "exported")),
        "database": await everything_stored(platform),
    }
    for root in (tmp_path, platform.data_dir):
        places |= contents_below(root, of_its_owner)

    assert psutil.Process(executor).environ()["HF_TOKEN"] == HF_TOKEN
    assert len(passwords) >= 4
    assert [oct(path.stat().st_mode & 0o077) for path in of_its_owner] == ["0o0"] * 3
    assert {
        (place, secret)
        for place, content in places.items()
        for secret in (HF_TOKEN, TOKEN, own, *passwords)
        if is_in(content, secret)
    } == set()


@pytest.mark.long
async def test_existing_servers_are_used(
    nats_server: NatsServer, nats_url: str, postgres_dsn: str
) -> None:
    assert nats_url
    servers = ("--nats", nats_server.url, "--nats-credentials", str(nats_server.credentials_path))
    with short_directory() as directory:
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", *servers),
            environment={"GPUSTEWARD_POSTGRES_DSN": postgres_dsn},
        )
        try:
            await platform.start()
            task = quick_task("elsewhere", parameters={"slots": [2]})
            view = await platform.until_finished(await platform.submit(task))

            assert view["state"] == "completed"
            assert not {"nats", "postgres"} & set(platform.states())
        finally:
            await platform.stop()


@pytest.mark.long
async def test_killed_supervisor_leaves_nothing(tmp_path: Path) -> None:
    with short_directory() as directory:
        platform = PlatformProcess(directory / "data")
        await platform.start()
        installation = str(platform.directory.installation_id())
        task = quick_task("orphans")
        task["benchmark"] |= {"max_requests_per_iteration": 100_000, "max_time_per_iteration": 1}
        await platform.submit(task)
        await eventually(
            lambda: any(is_engine(p) for p in marked_processes(installation)), within_seconds=20
        )

        assert platform.process is not None
        platform.process.kill()

        platform.process.wait()
        await eventually(lambda: marked_processes(installation) == [])


def is_engine(process: psutil.Process) -> bool:
    """Whether this is an inference server of an experiment."""
    try:
        return "shared.engines" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def remove_tree(path: Any) -> None:
    """Delete a directory that a living process may still be writing."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
