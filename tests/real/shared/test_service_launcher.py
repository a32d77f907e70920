"""Services as forks of one process that has imported their modules."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from shared.local_platform.platform import SERVICES
from shared.local_platform.supervisor.service import ChildSpec
from shared.local_platform.supervisor.service_launcher import ServiceLauncher
from shared.local_platform.supervisor.supervisor import Backoff, State, Supervisor
from shared.paths import DataDirectory, python_path
from shared.processes.child_process import ChildProcess
from shared.testing import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are adopted on Linux alone")

LONG = "long" * 1500
# The library stands for what services share.
LIBRARY = "rows = [str(number) * 20 for number in range(100_000)]"
SAYS_WHAT_IT_IS = """
import json, os, sys, library
said = {"arguments": sys.argv[1:], "directory": os.getcwd(), "session": os.getsid(0)}
said |= {"parent": os.getppid(), "environment": dict(os.environ), "main": __name__}
print(json.dumps(said), flush=True)
sys.exit(7)
"""
SERVES = """
import os, signal, library
if ready := os.environ.get("GPUSTEWARD_READY_FILE"):
    os.symlink(str(os.getpid()), ready)
print("serving", flush=True)
signal.pause()
"""


@asynccontextmanager
async def launcher(
    root: Path, modules: Sequence[str] = ("library",)
) -> AsyncIterator[ServiceLauncher]:
    """A launcher that finds the modules above in `root`."""
    for name, text in (("library", LIBRARY), ("says", SAYS_WHAT_IT_IS), ("serves", SERVES)):
        (root / f"{name}.py").write_text(text)
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{root}:{python_path()}", "MARK": "ours"}
    started = ServiceLauncher(modules, lambda: environment, log_path=root / "launcher.log")
    started.start()
    try:
        yield started
    finally:
        await started.stop()


def argv(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


async def launch(
    started: ServiceLauncher, root: Path, module: str, *arguments: str, **env: str
) -> ChildProcess:
    child = await started.launch(
        module, argv(module, *arguments), env=env, log_path=root / f"{module}.log", cwd=root
    )
    assert child is not None
    return child


async def serving(started: ServiceLauncher, root: Path) -> ChildProcess:
    log = root / "serves.log"
    before = log.stat().st_size if log.exists() else 0
    child = await launch(started, root, "serves", LONG=LONG, GPUSTEWARD_NODE_ID="here")
    await eventually(lambda: log.stat().st_size > before)
    return child


async def test_fork_is_what_a_new_interpreter_would_be(tmp_path: Path) -> None:
    async with launcher(tmp_path) as started:
        child = await launch(started, tmp_path, "says", "--loud", COLOUR="blue", EMPTY="")

        code = await child.wait()

        said = json.loads((tmp_path / "says.log").read_text())
        assert code == 7
        assert said == {
            "arguments": ["--loud"],
            "directory": str(tmp_path),
            "session": child.pid,
            "parent": os.getpid(),
            "environment": {"COLOUR": "blue", "EMPTY": ""},
            "main": "__main__",
        }
        assert (tmp_path / "says.log").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "launcher.log").read_text() == ""


async def test_fork_is_found_by_mark_and_command_line(tmp_path: Path) -> None:
    async with launcher(tmp_path) as started:
        child = await serving(started, tmp_path)

        shown = psutil.Process(child.pid)

        words = [word for word in shown.cmdline() if word]
        assert words == argv("serves")
        assert shown.environ() == {"GPUSTEWARD_NODE_ID": "here", "LONG": LONG}
        assert shown.ppid() == os.getpid()
        assert {Path(file.path).name for file in shown.open_files()} == {"serves.log"}
        assert shown.num_fds() == 3
        await child.stop(signal.SIGTERM, 5)


async def test_forks_share_what_was_imported(tmp_path: Path) -> None:
    async with launcher(tmp_path) as started:
        children = [await serving(started, tmp_path) for _ in range(3)]
        await started.stop()

        sizes = [psutil.Process(child.pid).memory_full_info() for child in children]

        assert all(size.pss < size.rss / 2 for size in sizes), sizes
        for child in children:
            assert child.returncode is None
            await child.stop(signal.SIGTERM, 5)
            assert child.returncode == -signal.SIGTERM


async def test_killed_fork_is_reported_alone(tmp_path: Path) -> None:
    async with launcher(tmp_path) as started:
        child, other = [await serving(started, tmp_path) for _ in range(2)]

        os.kill(child.pid, signal.SIGKILL)

        assert await child.wait() == -signal.SIGKILL
        assert other.returncode is None
        again = await serving(started, tmp_path)
        assert again.pid != child.pid
        for each in (other, again):
            await each.stop(signal.SIGTERM, 5)


async def test_forks_outlive_a_killed_launcher(tmp_path: Path) -> None:
    async with launcher(tmp_path) as started:
        child = await serving(started, tmp_path)
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)

        refused = await started.launch(
            "serves", argv("serves"), env={}, log_path=tmp_path / "serves.log", cwd=tmp_path
        )

        assert refused is None
        assert child.returncode is None
        await child.stop(signal.SIGTERM, 5)


async def test_stopped_launcher_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.local_platform.supervisor.service_launcher.LAUNCH_SECONDS", 0.2)
    async with launcher(tmp_path) as started:
        await (await serving(started, tmp_path)).stop(signal.SIGTERM, 5)
        assert started.pid is not None
        os.kill(started.pid, signal.SIGSTOP)

        refused = await started.launch(
            "serves", argv("serves"), env={}, log_path=tmp_path / "serves.log", cwd=tmp_path
        )

        assert refused is None


async def test_module_that_cannot_be_imported_fails_in_its_own_log(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('not today')")
    async with launcher(tmp_path, ("broken", "library")) as started:
        child = await launch(started, tmp_path, "broken")

        assert await child.wait() == 1
        assert "RuntimeError: not today" in (tmp_path / "broken.log").read_text()
        assert (tmp_path / "launcher.log").read_text() == ""


async def test_importing_services_starts_no_thread(tmp_path: Path) -> None:
    modules = [f"services.{name}.app" for name in (*SERVICES, "cluster")]
    async with launcher(tmp_path, ["serves_nothing", *modules]) as started:
        await (await launch(started, tmp_path, "says")).wait()
        assert started.pid is not None

        assert psutil.Process(started.pid).num_threads() == 1


@asynccontextmanager
async def supervised(
    root: Path, log_name: str
) -> AsyncIterator[tuple[Supervisor, ServiceLauncher]]:
    """A supervisor of one service that has the launcher's log at a path in its directory."""
    directory = DataDirectory(root / "data")
    directory.prepare()
    async with launcher(root):
        pass  # the modules are written
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{root}:{python_path()}"}
    forks = ServiceLauncher(["library"], lambda: environment, log_path=directory.root / log_name)
    spec = ChildSpec(name="serves", argv=argv("serves"), env=environment)
    supervisor = Supervisor(
        [[spec]], directory, backoff=Backoff(first_seconds=0.02), launcher=forks
    )
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, forks
    finally:
        supervisor.request_stop()
        await running
    assert supervisor.states[0].state is State.STOPPED


def is_ready(supervisor: Supervisor, restarts: int) -> bool:
    states = supervisor.states
    return bool(states) and states[0].state is State.READY and states[0].restarts == restarts


async def test_supervisor_restarts_without_its_launcher(tmp_path: Path) -> None:
    async with supervised(tmp_path, "logs/launcher.log") as (supervisor, forks):
        await eventually(lambda: is_ready(supervisor, 0) and forks.pid is None)
        first = supervisor.states[0].pid
        assert first is not None
        os.kill(first, signal.SIGKILL)

        await eventually(lambda: is_ready(supervisor, 1))

        assert supervisor.states[0].last_exit == "SIGKILL"
        log = (tmp_path / "data" / "logs" / "serves.log").read_text()
        assert log.splitlines() == ["serving", "serving"]


async def test_services_start_where_no_launcher_can(tmp_path: Path) -> None:
    async with supervised(tmp_path, "nowhere/launcher.log") as (supervisor, forks):
        await eventually(lambda: is_ready(supervisor, 0))

        assert forks.pid is None


async def test_launcher_killed_while_it_imports_delays_nothing(tmp_path: Path) -> None:
    async with supervised(tmp_path, "logs/launcher.log") as (supervisor, forks):
        await eventually(lambda: forks.pid is not None)
        assert forks.pid is not None
        os.kill(forks.pid, signal.SIGKILL)

        await eventually(lambda: is_ready(supervisor, 0))
