"""genai-bench as one of the tools."""

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelMark, LevelResult
from schemas.task.modality import Modality
from shared.benchmarks.builtin.generator import warm_up
from shared.benchmarks.chat_answers import ServedModel
from shared.benchmarks.genai_bench import command
from shared.benchmarks.genai_bench.command import Batch
from shared.benchmarks.genai_bench.image_folder import write_images
from shared.benchmarks.genai_bench.installation import GENAI_BENCH
from shared.benchmarks.genai_bench.process import ToolProcess
from shared.benchmarks.genai_bench.tokenizer import is_local, tokenizer_for
from shared.benchmarks.prompts import requests_of
from shared.benchmarks.tools.adapter import BenchmarkFailed, LoadPhase, Progress
from shared.benchmarks.tools.installed_tool import InstalledTool, Session
from shared.benchmarks.tools.spec_check import check_genai_bench
from shared.benchmarks.traffic import (
    DATASET,
    IMAGE_ANSWER_TOKENS,
    PREFLIGHT_SIZE,
    PromptText,
    Scenario,
)

LOG_NAME: Final = "genai_bench.log"
IMAGES_NAME: Final = "images"
IMAGES_READ_NAME: Final = "images-read"


@dataclass(slots=True, kw_only=True)
class _Session(Session):
    """Levels in processes of one scenario each, after the warm-up of the scenario."""

    _model: ServedModel = field(init=False)
    _tokenizer: str = field(init=False)
    _dataset: Path | None = None
    _images: Path | None = None
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
        if self.texts:
            self._dataset = self.directory / "dataset.json"
            texts = [prompt.text for prompt in self.texts]
            await asyncio.to_thread(self._dataset.write_bytes, msgspec.json.encode(texts))
        if self.spec.modality is Modality.IMAGES:
            self._images = await asyncio.to_thread(
                write_images, self.directory / IMAGES_NAME, self.spec, self._rng
            )
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
        try:
            await self._prepare()
            await self._measure_all()
        finally:
            if self._dataset is not None:
                self._dataset.unlink(missing_ok=True)
            for folder in (IMAGES_NAME, IMAGES_READ_NAME):
                shutil.rmtree(self.directory / folder, ignore_errors=True)

    async def _measure_all(self) -> None:
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
            self.levels += map(self._with_marks, await process.measure())
        except BenchmarkFailed as error:
            if not await self.server.answers():
                self.levels += map(self._with_marks, process.levels)
                raise self.gone() from error
            raise
        self.tool_version = _version(process.result_directory)
        return len(process.levels)

    def _with_marks(self, level: LevelResult) -> LevelResult:
        level = self.with_lag(level)
        if self.pieces_tokens == 1:
            return level
        return msgspec.structs.replace(level, marks=(*level.marks, LevelMark.ANSWER_PIECES))

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
                dataset=self._dataset,
                images=self._images,
                answer_tokens=self._answer_tokens(batch.scenario),
            ),
            env=command.environment(
                os.environ, self.target, is_tokenizer_local=is_local(self._tokenizer)
            )
            # Where it makes files of the images that it reads; in the user's home otherwise.
            | {"HF_DATASETS_CACHE": str(self.directory / IMAGES_READ_NAME)},
            directory=directory,
            batch=batch,
            levels_total=self.spec.num_levels,
            total=self.spec.max_requests_per_level,
            level_limit_seconds=60.0 * command.minutes_per_level(self.spec),
            secret=self.target.api_key,
            on_progress=self.on_progress,
        )

    def _answer_tokens(self, scenario: str) -> int | None:
        """Return what to ask for where genai-bench asks for answers of any length."""
        if self._images is not None:
            return IMAGE_ANSWER_TOKENS
        return _mean_answer_tokens(self.texts) if scenario == DATASET else None

    async def _warm_up(self, batch: Batch) -> None:
        await warm_up(
            self.server,
            _sizes(batch.scenario, self.texts, self.spec.batch_size),
            self._rng,
            requests=self.spec.warmup_requests,
            at_once=max(batch.concurrencies),
            limit_seconds=self.spec.max_time_per_level_seconds,
        )


class GenaiBench(InstalledTool):
    """Takes the kinds D, N, U, E, R and I, and dataset."""

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


def _sizes(scenario: str, texts: Sequence[PromptText], batch_size: int) -> Scenario:
    """Return the warm-up's requests; lines of genai-bench's own dataset are short."""
    if scenario == DATASET and not texts:
        return lambda _: PREFLIGHT_SIZE
    return requests_of(scenario, texts, 0, batch_size=batch_size)


def _mean_answer_tokens(texts: Sequence[PromptText]) -> int | None:
    return round(fmean(prompt.num_output_tokens for prompt in texts)) if texts else None
