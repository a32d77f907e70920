"""Benchmarks by a program that is installed beside the platform."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.chat_server import ChatServer, ServedModel
from shared.benchmarks.levels.level_choice import metrics_of
from shared.benchmarks.tools.adapter import (
    BenchmarkFailed,
    ProgressCallback,
    ServerGone,
    Target,
    server_gone,
)
from shared.benchmarks.tools.environment import Tool
from shared.benchmarks.traffic import request_parameters
from shared.paths import make_directory


@dataclass(slots=True, kw_only=True)
class Session(ABC):
    """One benchmark while it runs."""

    label: BenchmarkTool
    spec: BenchmarkSpec
    target: Target
    program: Path
    server: ChatServer
    directory: Path
    on_progress: ProgressCallback | None
    levels: list[LevelResult] = field(default_factory=list)
    tool_version: str = "unknown"
    _is_simulated: bool = False
    _started_at: float = field(default_factory=time.perf_counter)

    @abstractmethod
    async def measure(self) -> None:
        """Measure every level. Raises ServerGone if the server stops answering."""

    async def check_model(self) -> ServedModel:
        """Return the served model, once the server has proved that it can be measured."""
        await self.server.check_health()
        model = await self.server.find_model()
        self._is_simulated = model.simulated
        await self.server.check_completion(self.spec.max_time_per_level_seconds)
        return model

    def result(self) -> BenchmarkResult:
        """Return the result of the levels measured so far."""
        return BenchmarkResult(
            tool=self.label,
            tool_version=self.tool_version,
            simulated=self._is_simulated,
            levels=tuple(self.levels),
            metrics=metrics_of(self.spec, self.levels),
            elapsed_seconds=time.perf_counter() - self._started_at,
        )

    def gone(self) -> ServerGone:
        """Make the error that carries what was measured."""
        return server_gone(self.target.base_url, self.spec.num_levels, self.result())


class InstalledTool(ABC):
    """Drives the program, and believes its requests alone. `title` is its name for people."""

    label: BenchmarkTool
    title: str
    tool: Tool
    session: type[Session]

    def missing(self) -> str | None:
        """Say how to install the tool; None if it is installed."""
        return self.tool.what_is_missing()

    @abstractmethod
    def check(self, spec: BenchmarkSpec) -> None:
        """Check as `Adapter.check` does."""

    async def run(
        self,
        spec: BenchmarkSpec,
        target: Target,
        *,
        directory: Path,
        on_progress: ProgressCallback | None = None,
    ) -> BenchmarkResult:
        """Run as `Adapter.run` does; what the program wrote stays in `directory`.

        Raises ServerGone with what was measured if the server stops answering.
        """
        self.check(spec)
        program = self.tool.find_program()
        if program is None:
            raise BenchmarkFailed(self.missing() or f"{self.title} has just been removed")
        make_directory(directory, 0o700)
        async with ChatServer(
            base_url=target.base_url,
            model_name=target.model_name,
            api_key=target.api_key,
            parameters=request_parameters(spec.additional_params),
        ) as server:
            session = self.session(
                label=self.label,
                spec=spec,
                target=target,
                program=program,
                server=server,
                directory=directory,
                on_progress=on_progress,
            )
            await session.measure()
            return session.result()
