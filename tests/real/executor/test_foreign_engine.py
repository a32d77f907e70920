"""Engines that are not ours: they are told a port, and bring processes of their own.

`vllm` is a simulated engine here, under vLLM's command line.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from schemas.executor.attempts import AttemptOutcome, FailureKind
from services.executor.app import create_service
from services.executor.runtimes import process
from shared.engines.simulated.server import Behaviour, SimulatedEngine
from shared.paths import SOURCE_ROOT
from tests.support.http_server import serving
from tests.support.worlds.executor import (
    make_cancel,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
)

SERVE = """
arguments = sys.argv[1:]
assert arguments.pop(0) == "serve"
model = arguments.pop(0)
at = arguments.index("--served-model-name")
name = arguments.pop(at + 1)
arguments.pop(at)
server = "shared.engines.simulated.server"
os.environ["PYTHONPATH"] = ROOT
program = [sys.executable, "-m", server, "--model", model, "--alias", name]
os.execv(sys.executable, [*program, *arguments])
"""
FORK_WORKERS = """
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
"""
FAIL_ONCE = """
marker = pathlib.Path.home() / "failed"
if not marker.exists():
    marker.touch()
    sys.exit("OSError: [Errno 98] error while attempting to bind: address already in use")
"""
FAIL_ALWAYS = 'sys.exit("OSError: [Errno 98] address already in use")\n'
RUN_OUT_OF_MEMORY = 'sys.exit("torch.OutOfMemoryError: CUDA out of memory.")\n'
LISTEN_ELSEWHERE = """
arguments = sys.argv[1:]
arguments[arguments.index("--port") + 1] = "0"
sys.argv[1:] = arguments
"""


@pytest.fixture
def install_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a `vllm` on PATH that does what it is told before it serves."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def install(before: str) -> None:
        program = directory / "vllm"
        head = f"#!{sys.executable}\nimport os, pathlib, subprocess, sys\n"
        program.write_text(f"{head}ROOT = {str(SOURCE_ROOT)!r}\n{before}{SERVE}")
        program.chmod(0o755)

    return install


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="at once", marks=pytest.mark.long),
        pytest.param(FAIL_ONCE, id="on the second port"),
    ],
)
async def test_engine_given_its_port_is_measured(
    nats_url: str, tmp_path: Path, install_vllm: Callable[[str], None], before: str
) -> None:
    install_vllm(before)
    settings = make_settings(nats_url, tmp_path)
    start = make_start({}, engine="vllm")
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        finished = await scheduler.finished(start)

    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.engine_simulated
    homes = (settings.engine_home, tmp_path / "home")  # root's engines, and others'
    assert any((home / "failed").exists() for home in homes) == bool(before)


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param(
            FAIL_ALWAYS, FailureKind.PORT_TAKEN, id="no port is free", marks=pytest.mark.long
        ),
        pytest.param(RUN_OUT_OF_MEMORY, FailureKind.GPU_OUT_OF_MEMORY, id="out of memory"),
    ],
)
async def test_engine_that_never_serves_fails_attempt(
    nats_url: str,
    tmp_path: Path,
    install_vllm: Callable[[str], None],
    before: str,
    want: FailureKind,
) -> None:
    install_vllm(before)
    settings = make_settings(nats_url, tmp_path)
    start = make_start({}, engine="vllm")
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        finished = await scheduler.finished(start)

    assert finished.outcome is AttemptOutcome.FAILED
    assert finished.failure is not None
    assert finished.failure.kind is want


async def test_answer_of_other_process_is_not_ready(
    nats_url: str,
    tmp_path: Path,
    install_vllm: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_vllm(LISTEN_ELSEWHERE)
    settings = make_settings(nats_url, tmp_path, readiness_timeout_seconds=2.0)
    start = make_start({}, engine="vllm")
    async with serving(SimulatedEngine(Behaviour(model="m")).app()) as other:
        monkeypatch.setattr(process, "free_port", lambda: int(other.rpartition(":")[2]))
        async with scheduling(settings) as scheduler, create_service(settings).running():
            await scheduler.ask(start)
            finished = await scheduler.finished(start)

    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.READINESS_TIMEOUT


async def test_workers_outside_session_end_with_engine(
    nats_url: str, tmp_path: Path, install_vllm: Callable[[str], None]
) -> None:
    install_vllm(FORK_WORKERS)
    settings = make_settings(nats_url, tmp_path)
    start = msgspec.structs.replace(
        make_endless_start(), engine=make_start({}, engine="vllm").engine
    )
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        pids = await scheduler.until_measuring(start)
        sessions = {os.getsid(pid) for pid in pids}
        await scheduler.ask(make_cancel(start))
        await scheduler.until_released(start)

    assert len(pids) == 3
    assert len(sessions) == 2
    assert scheduler.running_at_release == [[]]
