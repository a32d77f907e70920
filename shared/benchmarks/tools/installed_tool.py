"""Benchmarks by a program that is installed beside the platform."""

import asyncio
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.chat_answers import ServedModel
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.client_lag import LagLog
from shared.benchmarks.levels.level_choice import metrics_of
from shared.benchmarks.levels.measured_level import with_client_lag, with_littles_law
from shared.benchmarks.prompts import read_prompts
from shared.benchmarks.tools.adapter import (
    NO_FILES,
    BenchmarkFailed,
    LoadFiles,
    ProgressCallback,
    ServerGone,
    Target,
    server_gone,
)
from shared.benchmarks.tools.environment import Tool
from shared.benchmarks.tools.spec_check import preflight_size
from shared.benchmarks.traced import NO_TRACE, TracedLoad, read_trace
from shared.benchmarks.traffic import PromptText, request_parameters
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
    texts: tuple[PromptText, ...] = ()
    trace: TracedLoad = NO_TRACE
    levels: list[LevelResult] = field(default_factory=list)
    lags: LagLog = field(default_factory=LagLog)
    tool_version: str = "unknown"
    pieces_tokens: int = 1  # of an answer's first piece, as seen before the load
    tokens_per_word: float = 1.0  # of a prompt, as the server counted the first one
    _is_simulated: bool = False
    _started_at: float = field(default_factory=time.perf_counter)

    @abstractmethod
    async def measure(self) -> None:
        """Measure every level. Raises ServerGone if the server stops answering."""

    def with_lag(self, level: LevelResult) -> LevelResult:
        """Return the level with how late this host was meanwhile, and whether its rate fits."""
        lags = self.lags.between(level.started_at, level.finished_at)
        return with_client_lag(with_littles_law(level), lags)

    async def check_model(self) -> ServedModel:
        """Return the served model, once the server has proved that it can be measured."""
        await self.server.check_health()
        model = await self.server.find_model()
        self._is_simulated = model.simulated
        size = preflight_size(self.spec)
        sample = await self.server.check_answer(self.spec.max_time_per_level_seconds, size)
        self.pieces_tokens = sample.num_first_tokens
        self.tokens_per_word = sample.num_input_tokens / size.num_input_tokens
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
        files: LoadFiles = NO_FILES,
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
            certificate=target.certificate,
            parameters=request_parameters(spec.additional_params, spec.modality),
        ) as server:
            session = self.session(
                label=self.label,
                spec=spec,
                target=target,
                program=program,
                server=server,
                directory=directory,
                on_progress=on_progress,
                texts=await asyncio.to_thread(read_prompts, files.prompts),
                trace=await asyncio.to_thread(read_trace, files.trace),
            )
            async with session.lags.running():
                await session.measure()
            return session.result()
