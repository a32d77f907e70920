"""AIPerf as one of the tools."""

import asyncio
import os
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.aiperf import command
from shared.benchmarks.aiperf.command import Plan
from shared.benchmarks.aiperf.installation import AIPERF
from shared.benchmarks.aiperf.process import LevelProcess, RunProgress
from shared.benchmarks.aiperf.results import read_level
from shared.benchmarks.arrivals import Load
from shared.benchmarks.builtin.prefix_cache import ServerPrefixCache, level_seed, with_cache_use
from shared.benchmarks.genai_bench.tokenizer import write_word_tokenizer
from shared.benchmarks.levels.level_choice import next_level
from shared.benchmarks.levels.measured_level import PromptTokens
from shared.benchmarks.tools.adapter import BenchmarkFailed, DamagedResult, LoadPhase, Progress
from shared.benchmarks.tools.installed_tool import InstalledTool, Session
from shared.benchmarks.tools.spec_check import check_generated
from shared.clock import utcnow

START_SECONDS: Final = 180.0  # its processes take 10 s, and a slow disk has to be read first
END_SECONDS: Final = 60.0
REPORT_SECONDS: Final = 0.5
MAX_PROMPTS_BYTES: Final = 256 * 2**20  # AIPerf copies them once


@dataclass(slots=True, kw_only=True)
class _Session(Session):
    """A process tree for each level, whose prompts go when it ends."""

    tool_version: str = AIPERF.version
    _reported: float = 0.0

    async def measure(self) -> None:
        await self.check_model()
        tokenizer = write_word_tokenizer(self.directory / "tokenizer")
        probes = random.Random(secrets.randbits(64))  # noqa: S311  # prompts that none has sent
        cache = ServerPrefixCache(self.server, probes)
        while (following := next_level(self.spec, self.levels)) is not None:
            scenario, load = following
            self._report(scenario, load, RunProgress(), is_due=True)
            start = await cache.begin()
            seed = level_seed(f"{scenario} {load}", self.spec.seed, start.reset)
            plan = command.plan_level(self.spec, scenario, load, seed, self.texts, self.trace)
            if not self.spec.modality.has_tokens:
                # It reads no counts of answers that come whole.
                plan = plan.with_tokens(self.tokens_per_word)
            try:
                level, prompts = await self._level(scenario, plan, tokenizer)
            except BenchmarkFailed as error:
                if not await self.server.answers():
                    raise self.gone() from error
                raise
            use = await cache.use(start, plan.warmup_requests + level.num_requests)
            level = msgspec.structs.replace(self.with_lag(level), seed=seed)
            self.levels.append(with_cache_use(level, use, prompts, is_warm=self.spec.is_warm))
            if not await self.server.answers():
                raise self.gone()

    async def _level(
        self, scenario: str, plan: Plan, tokenizer: Path
    ) -> tuple[LevelResult, PromptTokens]:
        directory = Path(tempfile.mkdtemp(prefix=f"level-{len(self.levels)}-", dir=self.directory))
        prompts = directory / "prompts"
        prompts.mkdir()
        # Short, as the names of sockets have to be, which it makes here.
        with tempfile.TemporaryDirectory(prefix="aiperf-") as scratch:
            try:
                process = await self._process(
                    scenario, plan, tokenizer, directory, prompts, Path(scratch)
                )
                began_at = utcnow()
                ended = await process.run()
                self._report(scenario, plan.load, process.progress, is_due=True)
            finally:
                shutil.rmtree(prompts, ignore_errors=True)
        self.tool_version = _version(directory)

        def read() -> tuple[LevelResult, PromptTokens]:
            lines = _lines(process.requests_path)
            return read_level(
                lines,
                ended,
                scenario=scenario,
                plan=plan.measured,
                spec=self.spec,
                began_at=began_at,
            )

        try:
            return await asyncio.to_thread(read)
        except DamagedResult as error:
            raise BenchmarkFailed(f"{process.requests_path.name}: {error}") from error

    async def _process(
        self,
        scenario: str,
        plan: Plan,
        tokenizer: Path,
        directory: Path,
        prompts: Path,
        scratch: Path,
    ) -> LevelProcess:
        requests, settings = prompts / "requests.jsonl", directory / "aiperf.json"
        await asyncio.to_thread(self._write_requests, plan, requests)
        document = command.configuration(
            plan,
            self.spec,
            self.target,
            requests=requests,
            tokenizer=tokenizer,
            directory=directory,
        )
        settings.write_bytes(msgspec.json.encode(document))
        phases = 2 if plan.warmup_requests else 1
        level_seconds = self.spec.max_time_per_level_seconds + command.GRACE_SECONDS
        return LevelProcess(
            argv=[str(self.program), "profile", "--config", str(settings)],
            env=command.environment(os.environ, self.target, prompts=prompts, scratch=scratch),
            directory=directory,
            limit_seconds=START_SECONDS + phases * level_seconds + END_SECONDS,
            on_change=lambda progress: self._report(scenario, plan.load, progress),
        )

    def _write_requests(self, plan: Plan, path: Path) -> None:
        written = 0
        with path.open("wb") as file:
            for line in command.request_lines(plan, self.spec, self.target.model_name):
                written += file.write(line)
                if written > MAX_PROMPTS_BYTES:
                    raise BenchmarkFailed(
                        f"expected prompts of at most {MAX_PROMPTS_BYTES >> 20} MiB in a "
                        f"level, as AIPerf has them all before it begins, got more for "
                        f"{len(plan.sizes)} requests: ask for fewer or shorter ones"
                    )

    def _report(
        self, scenario: str, load: Load, progress: RunProgress, *, is_due: bool = False
    ) -> None:
        now = time.monotonic()
        if self.on_progress is None or (not is_due and now - self._reported < REPORT_SECONDS):
            return
        self._reported = now
        self.on_progress(
            Progress(
                phase=LoadPhase.WARMING_UP if progress.started is None else LoadPhase.MEASURING,
                level_no=len(self.levels) + 1,
                levels_total=self.spec.num_levels,
                scenario=scenario,
                num_concurrency=load.concurrency,
                completed=progress.completed,
                failed=progress.failed,
                total=self.spec.max_requests_per_level,
                elapsed_seconds=0.0 if progress.started is None else now - progress.started,
                arrivals=load.arrivals,
            )
        )


class AIPerf(InstalledTool):
    """Takes all that the built-in generator can do."""

    label = BenchmarkTool.AIPERF
    title = "AIPerf"
    tool = AIPERF
    session = _Session

    def check(self, spec: BenchmarkSpec) -> None:
        check_generated(spec)


class _Summary(msgspec.Struct, frozen=True):
    aiperf_version: str


def _version(directory: Path) -> str:
    """AIPerf writes it down where a request succeeded."""
    try:
        content = (directory / "profile_export_aiperf.json").read_bytes()
        return msgspec.json.decode(content, type=_Summary).aiperf_version
    except (OSError, msgspec.DecodeError):
        return AIPERF.version


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from file
