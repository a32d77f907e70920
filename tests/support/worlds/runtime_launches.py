"""What an attempt hands a runtime, for tests of runtimes without an attempt."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from schemas.executor.attempts import EngineSpec, Runtime, StartExperiment
from services.executor.host.processes import ProcessMark
from services.executor.logs.engine_log import EngineLog
from services.executor.runtimes.runtime import Labels, Launch
from services.executor.settings import ExecutorSettings
from tests.support.docker.images import stub_engines_file
from tests.support.worlds.executor import NODE, make_start

FAST: dict[str, Any] = {"ttft-seconds": 0.002, "tpot-seconds": 0.0005}
LOG_LIMIT_BYTES = 1 << 20


def runtime_settings(data_dir: Path, **overrides: Any) -> ExecutorSettings:  # any field
    """Settings of an executor that no test shares; its vLLM may be the stub, given anything."""
    given: dict[str, Any] = {
        "data_dir": str(data_dir),
        "engines_file": stub_engines_file(data_dir),
        "node_id": NODE,
        "installation_id": f"test-{uuid4()}",
    }
    return ExecutorSettings(**given | overrides)


def start_of(
    engine: str,
    parameters: dict[str, Any] | None = None,
    *,
    runtime: Runtime = Runtime.DOCKER,
    model: str = "m",
    image_tag: str | None = None,
    **overrides: Any,  # any field
) -> StartExperiment:
    """An attempt at an engine in a container."""
    spec = EngineSpec(
        runtime=runtime,
        engine=engine,
        model=model,
        parameters=FAST if parameters is None else parameters,
        image_tag=image_tag,
    )
    return msgspec.structs.replace(make_start(**overrides), engine=spec)


async def remember_nothing(mark: ProcessMark) -> None:
    """A journal that forgets."""


def launch_of(
    command: StartExperiment,
    settings: ExecutorSettings,
    remember: Callable[[ProcessMark], Awaitable[None]] = remember_nothing,
    **overrides: Any,  # any field
) -> Launch:
    """As an attempt would."""
    directory = settings.attempt_dir(command.attempt_id)
    directory.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {
        "command": command,
        "labels": labels_of(command, settings),
        "directory": directory,
        "log": EngineLog(directory / "engine.log", LOG_LIMIT_BYTES),
        "served_model_name": command.engine.model,
        "remember": remember,
    }
    return Launch(**given | overrides)


def labels_of(command: StartExperiment, settings: ExecutorSettings) -> Labels:
    """The labels of an attempt's workload."""
    return Labels(
        reservation_id=command.reservation_id,
        installation_id=settings.installation_id,
        node_id=settings.node_id,
        epoch=command.epoch,
        experiment_id=command.experiment_id,
    )
