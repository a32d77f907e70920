"""An engine as a process sees little of the host: another user, few variables, no closed folder."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from schemas.executor.attempts import Runtime
from services.executor.engines.engine_table import ENGINES
from services.executor.host import engine_user as users
from services.executor.host.engine_user import EngineUser, NoEngineUser, engine_user
from services.executor.journal.journal import Journal
from services.executor.runtimes.engine_process import EngineProcess
from services.executor.runtimes.process import ProcessRuntime
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from tests.support.worlds.runtime_launches import launch_of, runtime_settings, start_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts engines as another user")
READY_SECONDS = 30.0


@asynccontextmanager
async def running(settings: ExecutorSettings) -> AsyncIterator[EngineProcess]:
    journal = await Journal(settings.home / "journal.db").open()
    command = start_of("simulated", runtime=Runtime.PROCESS)
    engine = await ProcessRuntime(settings, journal).start(launch_of(command, settings))
    try:
        await engine.until_ready(READY_SECONDS)
        yield engine
    finally:
        await engine.stop(0.0)
        journal.close_nowait()


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def environment_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def user_of(tmp_path: Path) -> EngineUser:
    user = engine_user("", tmp_path / "engine-home")
    assert user is not None
    return user


def ran(user: EngineUser, needed: list[Path], code: str) -> str:
    return subprocess.run(
        [sys.executable, "-I", "-c", code],
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=user.entering([*users.interpreter_paths(), *needed]),
    ).stdout.strip()


@as_root
async def test_engine_of_root_runs_as_unprivileged_user(tmp_path: Path) -> None:
    settings = runtime_settings(tmp_path)

    async with running(settings) as engine:
        status = status_of(engine.child.pid)

    uids = set(status["Uid"])
    assert "0" not in {*uids, *status["Gid"], *status["Groups"]}
    assert (len(uids), status["NoNewPrivs"], status["CapEff"]) == (1, ["1"], ["0" * 16])


async def test_engine_gets_few_operator_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "VLLM_API_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, "secret")
    for name in ("HF_TOKEN", "NCCL_DEBUG", "TZ"):
        monkeypatch.setenv(name, "given")
    settings = runtime_settings(tmp_path)

    async with running(settings) as engine:
        found = environment_of(engine.child.pid)
    async with running(msgspec.structs.replace(settings, engine_variables="")) as engine:
        without = environment_of(engine.child.pid)

    assert "secret" not in found.values()
    assert {found[name] for name in ("HF_TOKEN", "NCCL_DEBUG", "TZ")} == {"given"}
    assert "HF_TOKEN" not in without
    if os.geteuid() == 0:
        assert found["HOME"] == str(settings.engine_home)


@as_root
def test_engine_sees_only_needed_files_of_closed_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    model, secret = closed / "models/good/weights", closed / "secret"
    model.parent.mkdir(parents=True)
    model.write_text("weights")
    secret.write_text("secret")
    user = user_of(tmp_path)
    closed.chmod(0o700)

    code = f"import os; print(open({str(model)!r}).read(), os.listdir({str(closed)!r}))"

    assert ran(user, [closed / "models"], code) == "weights ['models']"
    assert secret.read_text() == "secret"
    assert ran(user, [], f"print(open({str(secret)!r}).read())") == ""


@as_root
def test_a_user_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoEngineUser, match=r"GPUSTEWARD_EXECUTOR_ENGINE_USER=none-such is none"):
        engine_user("none-such", tmp_path)

    assert engine_user("root", tmp_path) is None


@as_root
async def test_unusable_engine_user_refuses_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers of ours, whose flags name neither code nor files, run as the executor does."""
    monkeypatch.setattr(users, "_problem", lambda *_: "Permission denied")
    engines = {**ENGINES, "vllm": replace(ENGINES["vllm"], missing=lambda: None)}
    journal = await Journal(tmp_path / "journal.db").open()
    settings = runtime_settings(tmp_path)

    offer = await ProcessRuntime(settings, journal, engines).offer()
    strict = ProcessRuntime(msgspec.structs.replace(settings, engine_user="nobody"), journal)
    with pytest.raises(RefusedError, match="engines to run as nobody and not as root"):
        strict.check(start_of("simulated", runtime=Runtime.PROCESS))
    journal.close_nowait()

    assert "simulated" in offer.engines
    assert offer.missing["vllm"] == (
        "expected engines to run as gpusteward-engine and not as root, but it cannot run "
        f"{sys.executable}: Permission denied; install GPU Steward where every user may read, such "
        "as /opt, or set GPUSTEWARD_EXECUTOR_ENGINE_USER=root"
    )
