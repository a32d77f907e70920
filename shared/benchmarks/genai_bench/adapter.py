"""genai-bench as one of the tools."""

import asyncio
import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from shared.benchmarks.builtin.generator import warm_up
from shared.benchmarks.chat_server import PREFLIGHT_SIZE, ServedModel
from shared.benchmarks.genai_bench import command
from shared.benchmarks.genai_bench.command import Batch
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.genai_bench.process import ToolProcess
from shared.benchmarks.genai_bench.tokenizer import is_local, tokenizer_for
from shared.benchmarks.tools.adapter import BenchmarkFailed, LoadPhase, Progress
from shared.benchmarks.tools.installed_tool import InstalledTool, Session
from shared.benchmarks.tools.spec_check import check_genai_bench
from shared.benchmarks.traffic import DATASET, Scenario, parse_scenario

LOG_NAME: Final = "genai_bench.log"


@dataclass(slots=True, kw_only=True)
class _Session(Session):
    """Levels in processes of one scenario each, after the warm-up of the scenario."""

    _model: ServedModel = field(init=False)
    _tokenizer: str = field(init=False)
    _rng: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # no secret

    def _report_start(self) -> None:
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

    async def _prepare(self) -> None:
        """Have the server prove that it can be measured, and find the tokenizer."""
        self._model = await self.check_model()
        places = (self.target.model, self._model.root, await self.server.model_file())
        self._tokenizer = await asyncio.to_thread(
            tokenizer_for,
            self.spec.model_tokenizer,
            tuple(place for place in places if place),
            simulated=self._model.simulated,
            directory=self.directory / "tokenizer",
        )

    async def measure(self) -> None:
        """Levels after one that the tool gave up on go into a process of their own."""
        self._report_start()
        await self._prepare()
        for full_batch in command.batches(self.spec):
            batch = full_batch
            await self._warm_up(batch)
            while batch.concurrencies:
                measured = await self._measure(batch)
                batch = batch.after(measured)
                if not await self.server.answers():
                    raise self.gone()

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
                raise self.gone() from error
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


class GenaiBench(InstalledTool):
    """Takes chat completions of the kinds D, N, U and dataset."""

    label = BenchmarkTool.GENAI_BENCH
    title = "genai-bench"
    tool = GENAI_BENCH
    session = _Session

    def check(self, spec: BenchmarkSpec) -> None:
        check_genai_bench(spec)


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
