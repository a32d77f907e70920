"""One genai-bench process: watched by its files and its log, stopped for certain."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import LevelResult
from schemas.task.modality import modality_of
from shared.benchmarks.genai_bench.command import Batch, tool_scenario
from shared.benchmarks.genai_bench.masking import mask
from shared.benchmarks.genai_bench.output import OutputReader, Said
from shared.benchmarks.genai_bench.results import (
    Observed,
    debug_file_name,
    file_pattern,
    make_unanswered_level,
    read_run,
    with_unanswered,
)
from shared.benchmarks.tools.adapter import (
    BenchmarkFailed,
    DamagedResult,
    LoadPhase,
    Progress,
    ProgressCallback,
)
from shared.processes.child_process import ChildProcess, describe_exit

POLL_SECONDS: Final = 0.05
REPORT_SECONDS: Final = 0.5
STOP_SECONDS: Final = 5.0
START_SECONDS: Final = 180.0  # its imports take 6 to 10 s, and a slow disk has to be read first
LEVEL_SLACK_SECONDS: Final = 60.0
PIECE_BYTES: Final = 2**20
FILE_END: Final = b"\n}"  # of a document that is written with an indentation


@dataclass(slots=True, kw_only=True)
class _Run:
    """What the log says of a level; `started` and `ended` are of the monotonic clock."""

    started_at: datetime
    started: float
    failed: int = 0
    ended: float | None = None  # without a request that could be written down


@dataclass(slots=True, kw_only=True)
class ToolProcess:
    """Measures one batch. `directory` is new and its own, `total` a level's requests."""

    argv: Sequence[str]
    env: Mapping[str, str]
    directory: Path
    batch: Batch
    levels_total: int
    total: int
    level_limit_seconds: float
    secret: str | None = field(default=None, repr=False)
    on_progress: ProgressCallback | None = None
    levels: list[LevelResult] = field(default_factory=list)
    _output: OutputReader = field(default_factory=OutputReader)
    _read_bytes: int = 0
    _looked_at: float = field(default_factory=time.time)
    _started_at: float = field(default_factory=time.monotonic)
    _reported: float = 0.0
    _runs: list["_Run"] = field(default_factory=list)
    _tokens_estimated: bool = False
    _gave_up: bool = False

    @property
    def log_path(self) -> Path:
        return self.directory / "output.log"

    @property
    def result_directory(self) -> Path:
        return self.directory / "results"

    async def measure(self) -> list[LevelResult]:
        """The levels of the batch, fewer if the tool gave up after one that failed altogether.

        Raises BenchmarkFailed. Cancelled or failed, it leaves no process.
        """
        child = ChildProcess.spawn(
            "genai-bench", self.argv, env=self.env, log_path=self.log_path, cwd=self.directory
        )
        try:
            await self._watch(child)
        finally:
            try:
                await child.stop_for_certain(signal.SIGTERM, STOP_SECONDS)
            finally:
                self._mask()
        return self.levels

    async def _watch(self, child: ChildProcess) -> None:
        planned = len(self.batch.concurrencies)
        limit_seconds = START_SECONDS + planned * (self.level_limit_seconds + LEVEL_SLACK_SECONDS)
        while True:
            has_ended = child.returncode is not None
            self._listen()
            await self._collect()
            self._report()
            if len(self.levels) == planned or self._gave_up:
                return
            if has_ended:
                raise BenchmarkFailed(
                    f"genai-bench ended with {describe_exit(child.returncode or 0)} before "
                    f"{self._where()} was measured: {self._output.last_words or 'it said nothing'}"
                )
            if time.monotonic() - self._started_at > limit_seconds:
                raise BenchmarkFailed(
                    f"expected genai-bench to measure {planned} levels within "
                    f"{limit_seconds:.0f} s, it did not end {self._where()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _where(self) -> str:
        concurrency = self.batch.concurrencies[len(self.levels)]
        return f"{self.batch.scenario} at concurrency {concurrency}"

    def _listen(self) -> None:
        looked_at = time.time()
        with self.log_path.open("rb") as file:
            file.seek(self._read_bytes)
            while piece := file.read(PIECE_BYTES):
                self._read_bytes += len(piece)
                # The last write to the log is the moment of what is new in it, unless its file
                # system counts by another clock.
                written = os.fstat(file.fileno()).st_mtime
                is_starting = not self._runs
                self._note(self._output.feed(piece), max(self._looked_at, min(written, looked_at)))
                if is_starting:
                    # It writes down how it was called before its first run, and not again.
                    self._mask()
        self._looked_at = looked_at

    def _note(self, lines: list[Said], at: float) -> None:
        moment = time.monotonic() - max(0.0, time.time() - at)
        for line in lines:
            match line:
                case Said.RUN_STARTED:
                    self._runs.append(
                        _Run(started_at=datetime.fromtimestamp(at, UTC), started=moment)
                    )
                    self._reported = 0.0
                case Said.NOTHING_COLLECTED if self._runs:
                    self._runs[-1].ended = moment
                case Said.REQUEST_FAILED if self._runs:
                    self._runs[-1].failed += 1
                case Said.TOKENS_ESTIMATED:
                    self._tokens_estimated = True

    async def _collect(self) -> None:
        """Take the running level's result, if it is there."""
        if len(self.levels) >= len(self._runs):
            return
        run = self._runs[len(self.levels)]
        concurrency = self.batch.concurrencies[len(self.levels)]
        scenario = tool_scenario(self.batch.scenario)
        variable, value = self.batch.variable(len(self.levels))
        task = modality_of(scenario).traits.task
        debug_path = self.result_directory / debug_file_name(scenario, value)
        folders = [
            *self.result_directory.glob(file_pattern(scenario, task, variable, value)),
            *([debug_path] if debug_path.exists() else []),
        ]
        if folders and _is_whole(folders[0]):
            self._gave_up = folders[0] == debug_path
            level = await self._read(folders[0], run)
        elif run.ended is not None:
            level = make_unanswered_level(self.batch.scenario, concurrency, self._observe(run))
            level = msgspec.structs.replace(level, batch_size=self.batch.batch_size)
        else:
            return
        self.levels.append(level)
        self._reported = 0.0

    async def _read(self, path: Path, run: _Run) -> LevelResult:
        observed = self._observe(run)
        try:
            level = await asyncio.to_thread(lambda: read_run(path.read_bytes(), observed))
        except DamagedResult as error:
            raise BenchmarkFailed(f"{path.name}: {error}") from error
        if level.num_requests < self.total:
            level = with_unanswered(level)
        return msgspec.structs.replace(level, scenario=self.batch.scenario)

    def _observe(self, run: _Run) -> Observed:
        ended = time.monotonic() if run.ended is None else run.ended
        return Observed(
            started_at=run.started_at,
            seconds=ended - run.started,
            tokens_estimated=self._tokens_estimated,
        )

    def _report(self) -> None:
        now = time.monotonic()
        if self.on_progress is None or now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        self.on_progress(self._progress(now))

    def _progress(self, now: float) -> Progress:
        measured = len(self.levels)
        if len(self._runs) > measured:
            run = self._runs[measured]
            place, completed, failed = measured, 0, run.failed
            elapsed_seconds = now - run.started
        elif measured:
            level = self.levels[-1]
            place, elapsed_seconds = measured - 1, level.run_duration
            completed, failed = level.num_completed_requests, level.num_error_requests
        else:
            place, completed, failed = 0, 0, 0
            elapsed_seconds = now - self._started_at
        return Progress(
            phase=LoadPhase.MEASURING if self._runs else LoadPhase.WARMING_UP,
            level_no=self.batch.first + place,
            levels_total=self.levels_total,
            scenario=self.batch.scenario,
            num_concurrency=self.batch.concurrencies[place],
            completed=completed,
            failed=failed,
            total=self.total,
            elapsed_seconds=elapsed_seconds,
        )

    def _mask(self) -> None:
        if self.secret:
            mask(self.directory, self.secret)


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(FILE_END)))
        return file.read() == FILE_END
