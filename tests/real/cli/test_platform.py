"""The command line with the platform itself, on a simulated fleet."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from shared.local_platform.supervisor.leftovers import marked_processes
from shared.paths import DataDirectory
from shared.testing import eventually, short_directory
from tests.support.paths import ROOT

QUICK = ROOT / "schemas" / "examples" / "simulated-quick.json"
START_SECONDS = 45.0

pytestmark = pytest.mark.timeout(240)


class Installation:
    """A data directory, and commands that use it."""

    def __init__(self, data_dir: Path) -> None:
        self.directory = DataDirectory(data_dir)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **environment,
                "PYTHONPATH": str(ROOT),
                "GPUSTEWARD_DATA_DIR": str(self.directory.root),
                "GPUSTEWARD_LOCAL_TOKEN": "always",
            },
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = await self.start(*arguments)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def answers(self, *arguments: str) -> dict[str, list[dict[str, object]]]:
        """What a reading command prints as JSON."""
        code, out, err = await self.run(*arguments, "--json")
        assert code == 0, err
        found: dict[str, list[dict[str, object]]] = json.loads(out)
        return found

    async def listed(self, what: str) -> list[dict[str, object]]:
        """The same list from the API: a command for each look takes half a second of a core."""
        endpoint = self.directory.read_endpoint()
        assert endpoint is not None
        headers = {"Authorization": f"Bearer {self.directory.read_admin_token()}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{endpoint.api_url}/api/v1/{what}") as response,
        ):
            found: list[dict[str, object]] = (await response.json())[what]
            return found

    def left_behind(self) -> Sequence[int]:
        return marked_processes(str(self.directory.root.resolve()))


@pytest.fixture
async def installation() -> AsyncIterator[Installation]:
    with short_directory() as path:
        made = Installation(path / "data")
        yield made
        assert made.left_behind() == []


@pytest.fixture
async def platform(installation: Installation) -> AsyncIterator[Installation]:
    """With `gpusteward up` running and its GPUs known to the scheduler."""
    process = await installation.start("up", "--simulate")
    reading = asyncio.create_task(process.communicate())

    async def has_free_gpus() -> bool:
        if process.returncode is not None:
            raise AssertionError(await reading)
        if installation.directory.read_endpoint() is None:
            return False
        gpus = await installation.listed("gpus")
        return bool(gpus) and all(gpu.get("state") == "free" and gpu["fresh"] for gpu in gpus)

    try:
        await eventually(has_free_gpus, within_seconds=START_SECONDS, every_seconds=0.3)
        yield installation
    finally:
        if process.returncode is None:
            process.terminate()
        await reading


@pytest.mark.long
async def test_run_starts_a_platform_follows_the_task_and_leaves_nothing_behind(
    installation: Installation,
) -> None:
    code, out, err = await installation.run("run", "--simulate", str(QUICK))

    assert code == 0, err
    assert "platform started at http://127.0.0.1:" in err
    assert "completed: 4 of 4 experiments succeeded" in out
    assert "experiments by minimize_latency (mean_e2e_latency)" in out
    assert "GPUs while measured, min/mean/max" in out
    assert "the engine is simulated" in out
    assert installation.directory.read_endpoint() is None


@pytest.mark.long
async def test_a_killed_run_takes_its_platform_with_it(
    installation: Installation, tmp_path: Path
) -> None:
    process = await installation.start("run", "--simulate", str(_long_task(tmp_path)))
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while b"experiment 1/1" not in (line := await process.stdout.readline()):
            assert line, await process.communicate()
    assert installation.left_behind()

    process.kill()
    await process.communicate()

    await eventually(
        lambda: not installation.left_behind(), within_seconds=20, what="the platform to be gone"
    )


async def test_one_story_over_the_commands(platform: Installation, tmp_path: Path) -> None:
    """One platform for all of it, because starting one takes seconds."""
    await _whoever_has_no_token_reads_nothing_but_the_page_that_takes_it(platform)
    await _a_second_platform_is_refused(platform)
    await _a_second_machine_joins(platform)
    await _a_task_is_validated_but_not_stored(platform)
    await _a_bad_task_is_refused_with_its_field(platform, tmp_path)
    await _a_task_is_submitted_shown_and_cancelled(platform, tmp_path)
    await _an_interrupted_run_cancels_its_task_and_leaves_the_platform(platform, tmp_path)
    await _a_command_runs_on_reserved_gpus(platform)
    await _what_waits_is_explained_and_withdrawn(platform)


async def _whoever_has_no_token_reads_nothing_but_the_page_that_takes_it(
    platform: Installation,
) -> None:
    """Every command of this story finds the token by itself."""
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    found = {}
    async with aiohttp.ClientSession() as session:
        for path in ("/docs", "/healthz", "/readyz", "/metrics", "/api/v1/gpus", "/ws/metrics"):
            async with session.get(f"{endpoint.api_url}{path}") as response:
                found[path] = response.status

    assert found.pop("/docs") == found.pop("/healthz") == 200
    assert set(found.values()) == {401}


async def _a_second_platform_is_refused(platform: Installation) -> None:
    code, _, err = await platform.run("up")

    assert code == EXIT_CODE[ErrorCode.CONFLICT]
    assert f"{platform.directory.root} is held by process" in err
    assert "Traceback" not in err


async def _a_second_machine_joins(platform: Installation) -> None:
    """In another data directory, because it is another machine's."""
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    code, made, _ = await platform.run("agent-credentials", "beta")
    assert code == 0
    with short_directory() as directory:
        agent = await platform.start(
            *("agent", "--data-dir", str(directory / "data")),
            *("--nats", str(endpoint.nats_url)),
            *("--credentials", made.strip()),
        )

        async def has_joined() -> bool:
            nodes = await platform.listed("nodes")
            return any(node["node_id"] == "beta" and node["runtimes"] for node in nodes)

        await eventually(has_joined, within_seconds=START_SECONDS, every_seconds=0.3)
        assert agent.stdout is not None
        said = b""
        async with asyncio.timeout(START_SECONDS):
            while b"this machine has joined" not in said:
                said += await agent.stdout.readline()
        agent.terminate()
        await agent.communicate()

    assert f"this machine has joined {endpoint.nats_url}" in said.decode()


async def _a_task_is_validated_but_not_stored(platform: Installation) -> None:
    code, out, _ = await platform.run("validate", str(QUICK))

    assert code == 0
    assert "4 experiments of 4" in out
    assert (await platform.answers("tasks"))["tasks"] == []


async def _a_bad_task_is_refused_with_its_field(platform: Installation, tmp_path: Path) -> None:
    bad = json.loads(QUICK.read_text())
    bad["optimization"]["strategy"] = "guessing"
    (tmp_path / "bad.json").write_text(json.dumps(bad))

    code, _, err = await platform.run("submit", str(tmp_path / "bad.json"))

    assert code == EXIT_CODE[ErrorCode.BAD_REQUEST]
    assert "$.optimization.strategy" in err


async def _a_task_is_submitted_shown_and_cancelled(platform: Installation, tmp_path: Path) -> None:
    code, out, err = await platform.run("submit", str(_long_task(tmp_path)), "--json")
    assert code == 0, err
    task_id = json.loads(out)["task_id"]

    again = await platform.run("submit", str(_long_task(tmp_path)))
    cancelled = await platform.run("cancel", task_id[-12:])
    shown = await platform.run("show", task_id[-12:])

    assert again[0] == EXIT_CODE[ErrorCode.NAME_TAKEN]
    assert cancelled[:2] == (0, "task long is cancelled; nothing of it runs any more\n")
    assert "cancelled" in shown[1]


async def _an_interrupted_run_cancels_its_task_and_leaves_the_platform(
    platform: Installation, tmp_path: Path
) -> None:
    process = await platform.start("run", str(_long_task(tmp_path)))
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        while b"measuring" not in (line := await process.stdout.readline()):
            assert line, await process.communicate()

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert process.returncode == 130
    assert "cancelling the task; press Ctrl-C again to leave at once" in err.decode()
    assert "cancelled: 0 of 1 experiments succeeded" in out.decode()
    assert platform.directory.read_endpoint() is not None


async def _a_command_runs_on_reserved_gpus(platform: Installation) -> None:
    script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES']); raise SystemExit(5)"

    code, out, err = await platform.run("exec", "--gpus", "1", "--", sys.executable, "-c", script)
    (view, *_) = (await platform.answers("reservations"))["reservations"]

    assert code == 5, err
    assert "the reserved GPUs are simulated" in err
    uuids = [gpu["uuid"] for gpu in (await platform.answers("gpus"))["gpus"]]
    assert out.strip() in uuids
    assert view["state"] == "released"


async def _what_waits_is_explained_and_withdrawn(platform: Installation) -> None:
    count = len((await platform.answers("gpus"))["gpus"])
    code, out, err = await platform.run("reserve", "--gpus", str(count), "--json")
    assert code == 0, err
    held = json.loads(out)["reservation_id"]
    waiting = await platform.start("reserve", "--gpus", "1", "--wait", "30", "--json")

    async def queued() -> list[dict[str, object]]:
        views = await platform.listed("reservations")
        return [view for view in views if view["state"] == "queued"]

    async def is_queued() -> bool:
        return bool(await queued())

    await eventually(is_queued, every_seconds=0.2)
    ((view),) = await queued()
    explained = await platform.run("why", str(view["reservation_id"]))
    released = await platform.run("release", held)
    out_bytes, _ = await waiting.communicate()

    assert "position 1 of 1" in explained[1]
    assert explained[1].count("held") >= count
    assert released[0] == 0
    granted = json.loads(out_bytes)
    assert (granted["state"], len(granted["devices"])) == ("granted", 1)
    assert (await platform.run("cancel", str(view["reservation_id"])))[0] == 0


def _long_task(tmp_path: Path) -> Path:
    """One experiment that would measure for minutes."""
    task = json.loads(QUICK.read_text())
    task["task_name"] = "long"
    task["parameters"] = {"ttft-seconds": [1.0], "tpot-seconds": [0.1]}
    task["benchmark"]["max_requests_per_iteration"] = 1000
    task["benchmark"]["max_time_per_iteration"] = 5
    task["optimization"]["timeout_per_iteration"] = 400
    path = tmp_path / "long.json"
    path.write_text(json.dumps(task))
    return path
