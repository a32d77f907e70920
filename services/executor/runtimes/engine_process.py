"""One engine as processes of this host: started on its devices, awaited, ended without a rest."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Final

import aiohttp

from schemas.executor.attempts import Failure, FailureKind
from services.executor.domain.verdict import AttemptFailed, engine_exit, is_port_taken
from services.executor.engines.engine import EngineCommand
from services.executor.host.addresses import listens_on
from services.executor.host.processes import (
    ProcessMark,
    WorkloadLabel,
    mark_of,
    running_workload,
    session_marks,
)
from services.executor.host.workload_end import end_workload
from services.executor.runtimes.readiness import LOG_LINES_READ, is_ready, readiness_probe
from services.executor.runtimes.runtime import Labels, Launch, LogSink, PortTaken
from services.executor.settings import ExecutorSettings
from shared.engines.table import PROFILES
from shared.gpu.shares import share_environment
from shared.labels import environment_of
from shared.local_platform.supervisor.leftovers import MARK_VARIABLE
from shared.mps import mps_environment
from shared.processes.cgroups import Cgroup
from shared.processes.child_process import ChildProcess
from shared.visible_devices import without_other_gpus
from shared.waiting import within

POLL_SECONDS: Final = 0.05
ENGINE_USER: Final = "gpusteward"
OOM_ADJUSTMENT: Final = Path("/proc/self/oom_score_adj")
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_INHERITED: Final = {
    MARK_VARIABLE,
    *("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
}
_INHERITED_PREFIXES: Final = (
    *("LC_", "CUDA_", "NVIDIA_", "NCCL_", "HIP_", "HSA_", "ROCR_", "ROCM_", "OMP_", "MKL_"),
    *("TORCH", "TRITON_", "FLASHINFER_"),
    *(prefix for profile in PROFILES.values() for prefix in profile.variable_prefixes),
)
_SECRET_SUFFIXES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
_LISTENING: Final = re.compile(rb"^listening on (http://\S+:(\d+))$", re.MULTILINE)


def engine_environment(
    launch: Launch, engine_env: Mapping[str, str], settings: ExecutorSettings, *, home: Path
) -> dict[str, str]:
    """Return the environment of an engine: a few of our variables and those passed on, devices,
    labels.

    Our settings hold the way into the bus and the database, and the operator's own variables are no
    engine's business either. Raises GpuNotUsable.
    """
    prefixed = (name for name in os.environ if name.startswith(_INHERITED_PREFIXES))
    inherited = own_variables(
        {
            *_INHERITED,
            *settings.passed_variables,
            *(name for name in prefixed if not name.endswith(_SECRET_SUFFIXES)),
        }
    )
    command = launch.command
    devices = [d for d in command.devices if d.node_id == launch.labels.node_id]
    variables = {
        "PATH": os.defpath,
        **past_proxies(inherited),
        **launch.secrets,  # one of the same name wins over the operator's
        "HOME": str(home),
        "USER": ENGINE_USER,  # else Python asks for the user id's name, which it may not have
        "PYTHONUNBUFFERED": "1",
        **engine_env,
    }
    return {
        **without_other_gpus(variables, devices),
        **mps_environment(devices, settings.mps_pipe_dir),
        **share_environment(devices),
        **label_environment(launch.labels),
    }


def past_proxies(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with loopback excepted from the proxies among them: an engine asks its
    own server whether it is ready.
    """
    if not any(name.lower() in _PROXIES for name in variables):
        return dict(variables)
    excepted = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    names = [name.strip() for name in excepted.split(",") if name.strip()]
    text = ",".join(dict.fromkeys((*names, *_LOOPBACK)))
    return {**variables, "NO_PROXY": text, "no_proxy": text}


def own_variables(names: Collection[str]) -> dict[str, str]:
    """Return those variables that this process's environment has."""
    return {name: os.environ[name] for name in names if name in os.environ}


def label_environment(labels: Labels) -> dict[str, str]:
    """The labels as an engine's environment, by which its processes are found again."""
    return environment_of(
        labels.reservation_id,
        node_id=labels.node_id,
        epoch=labels.epoch,
        installation_id=labels.installation_id,
        experiment_id=labels.experiment_id,
    )


def give_up_oom_protection() -> None:
    """Have the kernel take this process for any other when memory is short: a unit protects ours,
    and what has filled the memory is an engine.
    """
    with contextlib.suppress(OSError, ValueError):
        if int(OOM_ADJUSTMENT.read_text()) < 0:
            OOM_ADJUSTMENT.write_text("0")


@dataclass(slots=True, kw_only=True)
class EngineProcess:
    """A started engine. `stop` has to be called, whatever happened."""

    child: ChildProcess
    mark: ProcessMark
    label: WorkloadLabel
    command: EngineCommand
    log: LogSink
    log_begins_at: int
    port: int
    cgroup: Cgroup | None
    ends_when: str

    @classmethod
    def spawn(
        cls,
        launch: Launch,
        command: EngineCommand,
        port: int,
        cgroup: Cgroup | None,
        *,
        environment: Mapping[str, str],
        enter_user: Callable[[], None] | None = None,
    ) -> "EngineProcess":
        """Start it, as another user after `enter_user`. Raises AttemptFailed if its program cannot
        be started.

        To be called in the main thread: the engine dies with the thread that started it.
        """
        path = launch.log.path
        log_begins_at = path.stat().st_size if path.exists() else 0

        def enter() -> None:
            give_up_oom_protection()
            if cgroup is not None:
                cgroup.enter()
            if enter_user is not None:
                enter_user()

        try:
            child = ChildProcess.spawn(
                command.engine,
                command.argv,
                env=environment,
                log_path=path,
                cwd=launch.directory,
                before_exec=enter,
                rotates_log=False,
            )
        except (OSError, SubprocessError) as error:
            message = f"{command.engine} could not be started: {error}"
            raise AttemptFailed.of(FailureKind.ENGINE_MISSING, message) from error
        mark = mark_of(child.pid)
        if mark is None:
            raise RuntimeError(f"process {child.pid} was reaped by another part of this program")
        return cls(
            child=child,
            mark=mark,
            label=launch.labels,
            command=command,
            log=launch.log,
            log_begins_at=log_begins_at,
            port=port,
            cgroup=cgroup,
            ends_when=launch.ends_when,
        )

    async def until_ready(self, timeout_seconds: float) -> str:
        """Wait until it answers its readiness path with 200; its base URL.

        Raises AttemptFailed when it ends or takes longer, PortTaken when its port was taken.
        """
        async with readiness_probe(self.command, self.log, timeout_seconds) as session:
            while not await self._answers(session):
                self._fail_if_ended("before it was ready")
                await asyncio.sleep(POLL_SECONDS)
        return self._base_url

    async def until_ended(self) -> Failure:
        """Wait until it ends by itself; why that fails a benchmark."""
        exit_code = await self.child.wait()
        return self._exit(exit_code, self.ends_when)

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, `grace_seconds`, SIGKILL to all of it; return once nothing of it runs."""
        marks: Sequence[ProcessMark] = await asyncio.to_thread(session_marks, self.mark)
        self.child.send(signal.SIGTERM)
        try:
            async with within(grace_seconds):
                await self.child.wait()
        except TimeoutError:
            self.child.kill()
        if self.cgroup is not None:
            await self.cgroup.end()
        await end_workload(self.label, (self.mark, *marks))
        await self.child.wait()

    def _exit(self, exit_code: int, when: str) -> Failure:
        return engine_exit(
            self.command.engine,
            exit_code,
            when,
            self.log.tail(LOG_LINES_READ),
            oom_killed=self.cgroup is not None and self.cgroup.was_out_of_memory(),
        )

    @property
    def _base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _answers(self, session: aiohttp.ClientSession) -> bool:
        if self.port == 0 and not self._read_announced_port():
            return False
        url = f"{self._base_url}{self.command.readiness_path}"
        if not await is_ready(session, url, allow_redirects=False):
            return False
        # Another process may have taken the port and answer in the engine's stead.
        return self.command.announces_address or await asyncio.to_thread(self._has_port)

    def _has_port(self) -> bool:
        return listens_on(self.port, running_workload(self.label, (self.mark,)))

    def _read_announced_port(self) -> bool:
        with self.log.path.open("rb") as file:
            file.seek(self.log_begins_at)
            match = _LISTENING.search(file.read(1 << 20))
        if match is None:
            return False
        self.port = int(match[2])
        return True

    def _fail_if_ended(self, when: str) -> None:
        exit_code = self.child.returncode
        if exit_code is None:
            return
        if not self.command.announces_address and is_port_taken(self.log.tail(LOG_LINES_READ)):
            raise PortTaken
        raise AttemptFailed(self._exit(exit_code, when))
