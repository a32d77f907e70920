"""genai-bench as one of the tools."""

import asyncio
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.builtin.generator import warm_up
from shared.benchmarks.chat_server import PREFLIGHT_SIZE, ChatServer, ServedModel
from shared.benchmarks.genai_bench import command
from shared.benchmarks.genai_bench.command import Batch
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.genai_bench.process import ToolProcess
from shared.benchmarks.genai_bench.tokenizer import is_local, tokenizer_for
from shared.benchmarks.metrics import aggregate
from shared.benchmarks.tools.adapter import (
    BenchmarkFailed,
    LoadPhase,
    Progress,
    ProgressCallback,
    ServerGone,
    Target,
    server_gone,
)
from shared.benchmarks.tools.spec_check import check_genai_bench
from shared.benchmarks.traffic import DATASET, Scenario, parse_scenario, request_parameters
from shared.paths import make_directory

LOG_NAME: Final = "genai_bench.log"


class GenaiBench:
    """Drives the program that is installed beside the platform, and believes its counts alone."""

    label = BenchmarkTool.GENAI_BENCH

    def missing(self) -> str | None:
        """How to install it."""
        return GENAI_BENCH.what_is_missing()

    def check(self, spec: BenchmarkSpec) -> None:
        """Chat completions of the kinds D, N, U and dataset."""
        check_genai_bench(spec)

    async def run(
        self,
        spec: BenchmarkSpec,
        target: Target,
        *,
        directory: Path,
        on_progress: ProgressCallback | None = None,
    ) -> BenchmarkResult:
        """Levels in processes of one scenario each; their files stay in `directory`.

        The warm-up of a scenario goes before its first level. Raises ServerGone with what was
        measured if the server stops answering.
        """
        self.check(spec)
        program = GENAI_BENCH.installed_program()
        if program is None:
            raise BenchmarkFailed(self.missing() or "genai-bench has just been removed")
        began = time.perf_counter()
        make_directory(directory, 0o700)
        async with ChatServer(
            base_url=target.base_url,
            model_name=target.model_name,
            api_key=target.api_key,
            parameters=request_parameters(spec.additional_params),
        ) as server:
            session = _Session(
                spec=spec,
                target=target,
                program=program,
                server=server,
                directory=directory,
                on_progress=on_progress,
            )
            session.report_start()
            await session.prepare()
            await session.measure()
            return session.result(time.perf_counter() - began)


@dataclass(slots=True, kw_only=True)
class _Session:
    """One benchmark while it runs."""

    spec: BenchmarkSpec
    target: Target
    program: Path
    server: ChatServer
    directory: Path
    on_progress: ProgressCallback | None
    levels: list[LevelResult] = field(default_factory=list)
    tool_version: str = "unknown"
    _model: ServedModel = field(init=False)
    _tokenizer: str = field(init=False)
    _rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # no secret
    _began: float = field(default_factory=time.perf_counter)

    def result(self, elapsed_seconds: float) -> BenchmarkResult:
        return BenchmarkResult(
            tool=BenchmarkTool.GENAI_BENCH,
            tool_version=self.tool_version,
            simulated=self._model.simulated,
            levels=tuple(self.levels),
            metrics=aggregate(self.levels, self.spec.max_error_rate),
            elapsed_seconds=elapsed_seconds,
        )

    def report_start(self) -> None:
        if self.on_progress is None:
            return
        self.on_progress(
            Progress(
                phase=LoadPhase.WARMING_UP,
                level_no=1,
                levels_total=self.spec.num_levels,
                scenario=self.spec.traffic_scenarios[0],
                num_concurrency=self.spec.num_concurrency[0],
                completed=0,
                failed=0,
                total=self.spec.max_requests_per_level,
                elapsed_seconds=0.0,
            )
        )

    async def prepare(self) -> None:
        """Have the server prove that it can be measured, and find the tokenizer."""
        await self.server.check_health()
        self._model = await self.server.served_model()
        await self.server.check_completion(self.spec.max_time_per_level_seconds)
        places = (self.target.model, self._model.root, await self.server.model_file())
        self._tokenizer = await asyncio.to_thread(
            tokenizer_for,
            self.spec.model_tokenizer,
            tuple(place for place in places if place),
            simulated=self._model.simulated,
            directory=self.directory / "tokenizer",
        )

    async def measure(self) -> None:
        """Every level, those after one that the tool gave up on in a process of their own."""
        for whole in command.batches(self.spec):
            batch = whole
            await self._warm_up(batch)
            while batch.concurrencies:
                measured = await self._measure(batch)
                batch = batch.after(measured)
                if not await self.server.answers():
                    raise self._gone()

    async def _measure(self, batch: Batch) -> int:
        directory = Path(tempfile.mkdtemp(prefix="run-", dir=self.directory))
        process = self._process(batch, directory)
        # What it logs is said on its output as well, which is kept.
        (directory / LOG_NAME).symlink_to(os.devnull)
        try:
            self.levels += await process.measure()
        except BenchmarkFailed as error:
            if not await self.server.answers():
                self.levels += process.levels
                raise self._gone() from error
            raise
        self.tool_version = _version(process.result_directory)
        return len(process.levels)

    def _process(self, batch: Batch, directory: Path) -> ToolProcess:
        return ToolProcess(
            argv=command.arguments(
                [str(self.program)],
                self.spec,
                self.target,
                batch,
                tokenizer=self._tokenizer,
                owned_by=self._model.owned_by,
                directory=directory / "results",
                log_directory=directory,
            ),
            env=command.environment(
                os.environ, self.target, is_tokenizer_local=is_local(self._tokenizer)
            ),
            directory=directory,
            batch=batch,
            levels_total=self.spec.num_levels,
            total=self.spec.max_requests_per_level,
            level_limit_seconds=60.0 * command.minutes_per_level(self.spec),
            secret=self.target.api_key,
            on_progress=self.on_progress,
        )

    async def _warm_up(self, batch: Batch) -> None:
        await warm_up(
            self.server,
            _sizes(batch.scenario),
            self._rng,
            requests=self.spec.warmup_requests,
            at_once=max(batch.concurrencies),
            limit_seconds=self.spec.max_time_per_level_seconds,
        )

    def _gone(self) -> ServerGone:
        measured = self.result(time.perf_counter() - self._began)
        return server_gone(self.target.base_url, self.spec.num_levels, measured)


class _Metadata(msgspec.Struct, frozen=True):
    benchmark_version: str


def _version(directory: Path) -> str:
    try:
        content = (directory / "experiment_metadata.json").read_bytes()
        return msgspec.json.decode(content, type=_Metadata).benchmark_version
    except (OSError, msgspec.DecodeError):
        return "unknown"


def _sizes(scenario: str) -> Scenario:
    """The warm-up's requests; lines of a dataset are short."""
    if scenario == DATASET:
        return lambda _: PREFLIGHT_SIZE
    return parse_scenario(scenario)
