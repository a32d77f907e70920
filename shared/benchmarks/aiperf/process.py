"""One AIPerf run: a tree of processes in one group, watched by its log and its file of requests."""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.benchmarks.aiperf.results import Ended, read_end, says_started
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.processes.child_process import ChildProcess, describe_exit

POLL_SECONDS: Final = 0.05
STOP_SECONDS: Final = 0.5
PIECE_BYTES: Final = 2**20
MAX_LOG_BYTES: Final = 64 * 2**20
LINE_CHARACTERS: Final = 300
FAILED_MARK: Final = b'"error":{'


@dataclass(slots=True)
class RunProgress:
    """How far it is. `started` is of the monotonic clock; None: it starts or warms up."""

    started: float | None = None
    completed: int = 0
    failed: int = 0
    ended: Ended | None = None


@dataclass(slots=True, kw_only=True)
class LevelProcess:
    """Runs once. It writes `profile_export.jsonl` into `directory`, which is new and its own."""

    argv: Sequence[str]
    env: Mapping[str, str]
    directory: Path
    limit_seconds: float
    on_change: Callable[[RunProgress], None]
    progress: RunProgress = field(default_factory=RunProgress)
    _log: "_Tail" = field(init=False)
    _requests: "_Tail" = field(init=False)
    _last_words: str = ""

    def __post_init__(self) -> None:
        self._log = _Tail(self.directory / "output.log")
        self._requests = _Tail(self.requests_path)

    @property
    def requests_path(self) -> Path:
        """A line for each request that ended."""
        return self.directory / "profile_export.jsonl"

    async def run(self) -> Ended:
        """Raises BenchmarkFailed. Cancelled or failed, it leaves no process."""
        child = ChildProcess.spawn(
            "aiperf", self.argv, env=self.env, log_path=self._log.path, cwd=self.directory
        )
        try:
            await self._watch(child)
        finally:
            # All is written: what it does on SIGTERM, which is to cancel in order, takes longer and
            # changes nothing.
            await child.stop_for_certain(signal.SIGKILL, STOP_SECONDS)
        if self.progress.ended is None:
            raise BenchmarkFailed(
                f"AIPerf ended with {describe_exit(child.returncode or 0)} before the level was "
                f"measured: {self._last_words or 'it said nothing'}"
            )
        return self.progress.ended

    async def _watch(self, child: ChildProcess) -> None:
        ends = time.monotonic() + self.limit_seconds
        while True:
            has_ended = child.returncode is not None
            self._listen()
            self.on_change(self.progress)
            if has_ended:
                return
            if time.monotonic() > ends:
                raise BenchmarkFailed(
                    f"expected AIPerf to measure a level within {self.limit_seconds:.0f} s; "
                    f"{self.progress.completed + self.progress.failed} requests had ended"
                )
            if self._log.size_bytes > MAX_LOG_BYTES:
                raise BenchmarkFailed(
                    f"AIPerf wrote more than {MAX_LOG_BYTES >> 20} MiB of log: {self._last_words}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _listen(self) -> None:
        for raw in self._log.lines():
            line = raw.decode(errors="replace")
            if says_started(line):
                self.progress.started = time.monotonic()
            self.progress.ended = read_end(line) or self.progress.ended
            if " ERROR " in line or "Error" in line:
                self._last_words = line.strip()[:LINE_CHARACTERS]
        for raw in self._requests.lines():
            if b'"benchmark_phase":"profiling"' in raw:
                is_failed = FAILED_MARK in raw
                self.progress.failed += is_failed
                self.progress.completed += not is_failed


@dataclass(slots=True)
class _Tail:
    """The whole lines that were appended to a file since the last look."""

    path: Path
    size_bytes: int = 0
    _partial_line: bytes = b""

    def lines(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self.size_bytes)
                piece = file.read(PIECE_BYTES)
        except FileNotFoundError:
            return []
        self.size_bytes += len(piece)
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        return lines
