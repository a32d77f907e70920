"""Engines as bare processes of this host."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.errors import ErrorCode
from schemas.executor.attempts import (
    EngineSpec,
    FailureKind,
    Runtime,
    RuntimeOffer,
    StartExperiment,
)
from services.executor.domain.verdict import AttemptFailed
from services.executor.engines.compile_cache import ENGINE_VARIABLES, cache_variables
from services.executor.engines.engine import Engine, EngineCommand
from services.executor.engines.engine_table import (
    ENGINES,
    SWITCHED_OFF,
    build_command,
    engine_named,
)
from services.executor.engines.mounted_model import locate
from services.executor.host.addresses import free_port
from services.executor.host.engine_user import (
    EngineUser,
    NoEngineUser,
    engine_user,
    interpreter_paths,
    program_paths,
)
from services.executor.host.processes import find_labelled_processes
from services.executor.host.workload_end import end_workload
from services.executor.journal import store
from services.executor.journal.journal import Journal
from services.executor.runtimes.device_shares import check_shares
from services.executor.runtimes.engine_process import EngineProcess, engine_environment
from services.executor.runtimes.runtime import Labels, Launch, Workload
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.logging import log
from shared.processes.cgroups import CgroupLimits, Cgroups
from shared.visible_devices import GpuNotUsable

ANY_PORT: Final = 0
_CACHES: Final = ("HF_HOME", "HF_HUB_CACHE")


@dataclass(frozen=True, slots=True)
class ProcessRuntime:
    """Programs of the engine table, each in a session of its own, in a cgroup where possible.

    The journal knows which processes it started, besides what their environment says.
    """

    kind = Runtime.PROCESS
    settings: ExecutorSettings
    journal: Journal
    engines: Mapping[str, Engine] = field(default_factory=lambda: ENGINES)
    cgroups: Cgroups = field(default_factory=Cgroups.of_this_host)

    async def offer(self) -> RuntimeOffer:
        """The engines whose programs are installed."""
        reasons = await asyncio.to_thread(
            lambda: {name: self._missing(engine) for name, engine in self.engines.items()}
        )
        if not self.settings.allow_simulated_engine:
            off = {name: SWITCHED_OFF for name, engine in self.engines.items() if engine.simulated}
            reasons |= off
        return RuntimeOffer(
            runtime=Runtime.PROCESS,
            engines=tuple(name for name, reason in reasons.items() if reason is None),
            missing={name: reason for name, reason in reasons.items() if reason is not None},
            model_roots=tuple(map(str, self.settings.model_root_paths)),
            engine_rules={name: engine.rules for name, engine in self.engines.items()},
        )

    def check(self, command: StartExperiment) -> None:
        """Raises RefusedError naming the field."""
        check_shares(command, self.settings)
        engine = self._command(command, ANY_PORT, {})
        missing = self._missing(engine_named(engine.engine, self.engines))
        if missing is not None:
            raise RefusedError(ErrorCode.UNSUPPORTED, missing, path="$.engine.engine")
        if engine.simulated and not self.settings.allow_simulated_engine:
            raise RefusedError(ErrorCode.UNSUPPORTED, SWITCHED_OFF, path="$.engine.engine")

    async def prepare(self, _: EngineSpec) -> str:
        """Do nothing: a process has no image to prepare."""
        return ""

    async def fetch(
        self, command: StartExperiment, on_progress: Callable[[float, str], None]
    ) -> None:
        """Do nothing: the program is installed, or the start was refused."""

    async def start(self, launch: Launch) -> EngineProcess:
        engine = self._command(launch.command, ANY_PORT, launch.rank_parameters)
        port = ANY_PORT
        if not engine.announces_address:
            port = free_port()
            engine = self._command(launch.command, port, launch.rank_parameters)
        cgroup = self.cgroups.make(launch.labels.cgroup_names, self._limits(launch.command))
        row = engine_named(engine.engine, self.engines)
        user = await asyncio.to_thread(self._user, row)
        cache = await asyncio.to_thread(_cache, launch, row, user)
        try:
            environment = engine_environment(
                launch,
                engine.env if cache is None else {**engine.env, **cache_variables(str(cache))},
                self.settings,
                home=Path.home() if user is None else user.home,
            )
        except GpuNotUsable as error:
            raise AttemptFailed.of(FailureKind.GPU_UNAVAILABLE, str(error)) from error
        process = EngineProcess.spawn(
            launch,
            engine,
            port,
            cgroup,
            environment=environment,
            enter_user=None if user is None else user.entering(self._read_by(row, environment)),
        )
        try:
            await launch.remember(process.mark)
        except BaseException:
            # Its labels would find it, but no other process can reap it.
            await process.stop(0.0)
            raise
        return process

    async def workloads(self) -> tuple[Workload, ...]:
        """Return all processes with a label of ours in their environment, also those that others
        started.
        """
        process_groups = await asyncio.to_thread(
            find_labelled_processes, self.settings.installation_id
        )
        return tuple(
            Workload(
                labels=Labels(
                    reservation_id=group.reservation_id,
                    installation_id=self.settings.installation_id,
                    node_id=group.node_id or self.settings.node_id,
                    epoch=group.epoch,
                    experiment_id=group.experiment_id,
                ),
                pids=group.pids,
                is_named=group.names_installation,
            )
            for group in process_groups
        )

    async def end(self, labels: Labels, *, grace_seconds: float = 0.0) -> None:
        marks = await self.journal.transact(
            lambda connection: store.process_marks(connection, labels.reservation_id)
        )
        await self.cgroups.end(labels.cgroup_names)
        await end_workload(labels, marks, grace_seconds=grace_seconds)

    def _command(
        self, command: StartExperiment, port: int, rank_parameters: Mapping[str, object]
    ) -> EngineCommand:
        return build_command(
            command.engine.engine,
            locate(command.engine.model, self.settings.model_root_paths).name,
            command.engine.parameters,
            port=port,
            served_model_name=command.benchmark.model_name or command.engine.model,
            rank_parameters=rank_parameters,
            engines=self.engines,
            variables=command.engine.env,
        )

    def _missing(self, engine: Engine) -> str | None:
        """Return what to install or to set before the engine can run here; None if nothing."""
        if (missing := engine.missing()) is not None:
            return missing
        try:
            self._user(engine)
        except NoEngineUser as error:
            return str(error)
        return None

    def _user(self, engine: Engine) -> EngineUser | None:
        """Whom it runs as, None for our own user. Raises NoEngineUser.

        A server of ours runs also where no other user can: none of its flags names code or a file.
        """
        try:
            return engine_user(self.settings.engine_user, self.settings.engine_home)
        except NoEngineUser as error:
            if engine.flags is None or self.settings.engine_user:
                raise
            log.warning("engine_runs_as_root", engine=engine.name, reason=str(error))
            return None

    def _read_by(self, row: Engine, environment: Mapping[str, str]) -> Iterator[Path]:
        yield from interpreter_paths()
        yield from self.settings.model_root_paths
        yield from (Path(directory) for name in _CACHES if (directory := environment.get(name)))
        compiled = (environment.get(name) for name in ENGINE_VARIABLES)
        yield from (Path(directory).parent for directory in compiled if directory)
        if (program := shutil.which(row.program[0])) is not None:
            yield from program_paths(program)

    def _limits(self, command: StartExperiment) -> CgroupLimits:
        return CgroupLimits(
            memory_mb=command.host_memory_mb or self.settings.engine_memory_mb or None,
            cpus=command.cpu_count or self.settings.engine_cpus or None,
            pids=self.settings.engine_pids,
        )


def _cache(launch: Launch, row: Engine, user: EngineUser | None) -> Path | None:
    """The directory for what the engine compiles, which is its user's."""
    program = shutil.which(row.program[0]) or row.program[0]
    with contextlib.suppress(OSError):
        program += f"@{Path(program).stat().st_mtime_ns}"
    directory = launch.take_cache(program)
    if directory is not None and user is not None:
        os.chown(directory, user.identity.uid, user.identity.gid)
    return directory
