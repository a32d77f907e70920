"""The whole platform as its own processes, for tests that cross every seam for real."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import psutil

from shared.paths import DataDirectory
from shared.testing import eventually
from tests.support.ports import free_port
from tests.support.processes.command_line import CommandProcess, start_command

START_SECONDS = 90.0


def marked_processes(installation_id: str) -> list[psutil.Process]:
    """Every process whose environment names this installation."""
    marked = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GPUSTEWARD_INSTALLATION_ID") == installation_id or (
                process.environ().get("GPUSTEWARD_INSTALLATION") == installation_id
            ):
                marked.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return marked


@dataclass
class PlatformProcess:
    """`gpusteward up` in a data directory of its own, and what a user and an accident do to it."""

    data_dir: Path
    port: int = field(default_factory=free_port)
    arguments: tuple[str, ...] = ("--simulate",)
    environment: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = (sys.executable, "-m", "services.cli")
    working_directory: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def directory(self) -> DataDirectory:
        return DataDirectory(self.data_dir)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start, and wait until every part answers."""
        self.launch()
        await eventually(self.is_ready, within_seconds=START_SECONDS, what="a ready platform")

    def launch(self) -> None:
        """Start, and wait for nothing."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        command = [*self.program, "up"]
        command += ["--data-dir", str(self.data_dir), "--port", str(self.port), *self.arguments]
        self.process = subprocess.Popen(
            command,
            cwd=self.working_directory,
            env={**environment, "GPUSTEWARD_LOCAL_TOKEN": "never", **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def stop(self) -> None:
        """End it as a user does, and wait; SIGKILL if it does not end."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)
            raise

    async def is_ready(self) -> bool:
        """Whether every part answers and the simulated fleet may be granted."""
        assert self.process is not None
        assert self.process.poll() is None, self.logs()
        try:
            status, _ = await self.request("GET", "/readyz")
            if status != 200:
                return False
            _, gpus = await self.request("GET", "/api/v1/gpus")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        found = gpus.get("gpus", [])
        return bool(found) and all(gpu.get("fresh", False) for gpu in found)

    def logs(self) -> str:
        """The last lines of every log, for a failing test's message."""
        parts = []
        for path in sorted(self.directory.root.glob("logs/*.log")):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            parts.append("\n".join([f"== {path.name}", *lines]))
        return "\n".join(parts)

    def states(self) -> dict[str, dict[str, Any]]:
        """The supervisor's children by name, as its state file tells."""
        raw = json.loads((self.data_dir / "state.json").read_text())
        return {child["name"]: child for child in raw}

    def pid_of(self, name: str) -> int | None:
        """The process id of a service or server; None while it is down."""
        pid = self.states()[name].get("pid")
        return int(pid) if pid else None

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one part, by pid; a part that is down already stays down."""
        pid = self.pid_of(name)
        if pid is not None:
            os.kill(pid, how)

    async def request(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> tuple[int, Any]:
        """One HTTP request: status and decoded JSON (None without a body)."""
        timeout = aiohttp.ClientTimeout(total=15)
        token = self.directory.read_admin_token()
        headers = {"Authorization": f"Bearer {token}"} if token else None
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.request(method, self.url + path, json=body, **options) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else None

    async def start_command(self, *arguments: str) -> CommandProcess:
        """`gpusteward` as a user of this platform types it."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
        return await start_command(
            *arguments,
            environment={**environment, "GPUSTEWARD_DATA_DIR": str(self.data_dir)},
        )

    async def command(self, *arguments: str) -> tuple[int | None, str, str]:
        """One command: its exit code and what it printed."""
        process = await self.start_command(*arguments)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def submit(self, task: Mapping[str, Any]) -> str:
        """Submit a task and return its id."""
        status, body = await self.request("POST", "/api/v1/tasks", task)
        assert status == 201, body
        return str(body["task_id"])

    async def task(self, task_id: str) -> dict[str, Any]:
        """The task's view; an empty one while the gateway is away."""
        try:
            status, body = await self.request("GET", f"/api/v1/tasks/{task_id}")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return {}
        return body if status == 200 else {}

    async def experiments(self, task_id: str) -> list[dict[str, Any]]:
        """The experiments of a task, whole, in the order of expansion."""
        body = await self._read(f"/api/v1/tasks/{task_id}/experiments")
        rows = body["experiments"]
        return [await self._read(f"/api/v1/experiments/{row['experiment_id']}") for row in rows]

    async def _read(self, path: str) -> dict[str, Any]:
        """Asked once more if the owner is said not to answer in time, as clients do."""
        status, body = await self.request("GET", path)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            status, body = await self.request("GET", path)
        assert status == HTTPStatus.OK, body
        return dict(body)

    async def until_finished(self, task_id: str, within_seconds: float = 90.0) -> dict[str, Any]:
        """Wait for the task's end and return its view."""
        view: dict[str, Any] = {}

        async def finished() -> bool:
            nonlocal view
            view = await self.task(task_id)
            return view.get("state") in {"completed", "failed", "cancelled"}

        try:
            await eventually(finished, within_seconds=within_seconds, every_seconds=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {view}\n{self.logs()}") from error
        return view

    @asynccontextmanager
    async def postgres(self) -> AsyncIterator[Any]:
        """A connection to the platform's database, to look at the truth itself."""
        endpoint = self.directory.read_endpoint()
        assert endpoint is not None
        connection = await asyncpg.connect(endpoint.postgres_dsn)
        try:
            yield connection
        finally:
            await connection.close()


def quick_task(name: str, **overrides: Any) -> dict[str, Any]:
    """A task on the simulated engine: four experiments of about a second each."""
    task: dict[str, Any] = {
        "task_name": name,
        "deployment_mode": "process",
        "model": {"id_or_path": "simulated-model"},
        "base_runtime": "simulated",
        "parameters": {"ttft-seconds": [0.005, 0.01], "tpot-seconds": [0.001, 0.002]},
        "optimization": {
            "strategy": "grid_search",
            "objective": "minimize_latency",
            "timeout_per_iteration": 60,
            "max_parallel": 2,
        },
        "benchmark": {
            "traffic_scenarios": ["D(20,20)"],
            "num_concurrency": [2],
            "max_time_per_iteration": 0.5,
            "max_requests_per_iteration": 30,
            "tool": "builtin",
        },
    }
    return {**task, **overrides}


async def assert_sound(platform: PlatformProcess, task_id: str) -> None:
    """What must hold after any accident: one outcome each, no overlap, no device held twice."""
    for experiment in await platform.experiments(task_id):
        assert experiment["state"] in {"succeeded", "failed", "cancelled"}
        attempts = experiment["attempts"]
        outcomes = [attempt["outcome"] for attempt in attempts]
        assert all(outcomes), outcomes
        assert set(outcomes[:-1]) <= {"interrupted", "failed"}, outcomes
        assert outcomes[-1] != "interrupted", outcomes
        assert experiment["interrupted_attempts"] == outcomes.count("interrupted")
        spans = sorted((a["started_at"], a["finished_at"]) for a in attempts if a.get("started_at"))
        for (_, earlier_end), (later_start, _) in itertools.pairwise(spans):
            assert earlier_end <= later_start
    await assert_ledger_sound(platform)


async def assert_ledger_sound(platform: PlatformProcess) -> None:
    """No device was held twice at any time, and every experiment ended once."""
    async with platform.postgres() as connection:
        overlapping = await connection.fetchval(
            "SELECT count(*) FROM scheduler.holding a JOIN scheduler.holding b"
            " ON a.cells && b.cells AND a.reservation_id < b.reservation_id"
            " AND a.granted_at < coalesce(b.released_at, 'infinity')"
            " AND b.granted_at < coalesce(a.released_at, 'infinity')"
        )
        finals = await connection.fetch(
            "SELECT experiment_id AS experiment, count(DISTINCT message_id) AS ends"
            " FROM gateway.event WHERE type IN ('orchestrator.experiment_succeeded',"
            " 'orchestrator.experiment_failed', 'orchestrator.experiment_cancelled') GROUP BY 1"
        )
    assert overlapping == 0
    assert [row["experiment"] for row in finals if row["ends"] != 1] == []
