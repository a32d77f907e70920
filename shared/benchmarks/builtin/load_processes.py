"""One level by several processes, where a single one would be what limits it."""

import asyncio
import contextlib
import math
import random
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from shared.benchmarks.arrivals import Load, is_trace, mean_rate_per_s
from shared.benchmarks.builtin.load_worker import PartTask, decode, encode
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.levels.measured_level import LevelOutcome, PromptTokens
from shared.benchmarks.prompts import requests_of
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.benchmarks.traffic import PromptText
from shared.paths import SOURCE_ROOT
from shared.waiting import within

READY_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0  # from a level's last answer to the outcome
HEAD_START_SECONDS: Final = 0.2
CEILING_SHARE: Final = 0.5  # of what one process can take, that it is to take
MAX_LINE_BYTES: Final = 256 * 2**20

OnProgress = Callable[[int, int], None]


def parts(load: Load, spec: BenchmarkSpec, count: int) -> list[tuple[Load, BenchmarkSpec]]:
    """The load and the counts of a level, shared out."""
    share = replace(
        spec,
        warmup_requests=math.ceil(spec.warmup_requests / count),
        max_requests_per_level=math.ceil(spec.max_requests_per_level / count),
    )
    share_each, more = divmod(load.concurrency, count)
    return [(Load(share_each + (number < more), load.arrivals), share) for number in range(count)]


def merge_outcomes(load: Load, outcomes: Sequence[LevelOutcome]) -> LevelOutcome:
    """Merge the outcomes over the time in which all processes measured; a trace is measured
    whole.
    """
    latest = max(outcomes, key=lambda outcome: outcome.started)
    ends = [outcome.window_ends for outcome in outcomes if outcome.window_ends is not None]
    started, window_ends = latest.started, min(ends, default=None)
    if is_trace(load.arrivals) or (window_ends is not None and window_ends <= started):
        latest = min(outcomes, key=lambda outcome: outcome.started)
        started, window_ends = latest.started, max(ends, default=None)
    return LevelOutcome(
        load=load,
        records=[
            record
            for outcome in outcomes
            for record in outcome.records
            if started <= record.sent and (window_ends is None or record.sent <= window_ends)
        ],
        lags=[lag for outcome in outcomes for lag in outcome.lags],
        started_at=latest.started_at,
        started=started,
        window_ends=window_ends,
        in_flight_mean=sum(outcome.in_flight_mean or 0.0 for outcome in outcomes),
        rate_per_s=sum(outcome.rate_per_s for outcome in outcomes),
        sent_in_all=sum(outcome.sent_in_all for outcome in outcomes),
        prompts=PromptTokens.of_all(outcome.prompts for outcome in outcomes),
    )


async def run_parts(  # a level is all of these
    server: ChatServer,
    scenario: str,
    load: Load,
    spec: BenchmarkSpec,
    seed: int,
    count: int,
    on_progress: OnProgress,
    prompts: Path | None = None,
) -> LevelOutcome:
    """Cancelling ends the processes. Raises BenchmarkFailed if one of them ends."""
    tasks = [
        PartTask(
            base_url=server.base_url,
            model_name=server.model_name,
            api_key=server.api_key,
            certificate=None if server.certificate is None else str(server.certificate),
            parameters=server.parameters,
            adapters=server.adapters,
            limits=server.limits,
            scenario=scenario,
            load=own_load,
            spec=own_spec,
            seed=seed,
            number=number,
            of=count,
            prompts=None if prompts is None else str(prompts),
        )
        for number, (own_load, own_spec) in enumerate(parts(load, spec, count))
    ]
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_worker(task)) for task in tasks]

        def tell() -> None:
            on_progress(
                sum(worker.completed for worker in workers),
                sum(worker.failed for worker in workers),
            )

        await asyncio.gather(*(worker.until("ready", READY_SECONDS) for worker in workers))
        origin = asyncio.get_running_loop().time() + HEAD_START_SECONDS
        for worker in workers:
            worker.say(f"go {origin!r}")
        # A part warms up and measures for so long at most, until the next is sent, and drains.
        level_seconds = 2 * spec.max_time_per_level_seconds + spec.think_seconds
        limit = level_seconds + server.limits.drain_seconds + END_SECONDS
        await asyncio.gather(*(worker.until("over", limit, tell) for worker in workers))
        for worker in workers:
            worker.say("end")
        outcomes = await asyncio.gather(*(worker.outcome() for worker in workers))
    return merge_outcomes(load, outcomes)


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    completed: int = 0
    failed: int = 0

    def say(self, text: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(f"{text}\n".encode())

    async def until(
        self, word: str, seconds: float, tell: Callable[[], None] = lambda: None
    ) -> None:
        ends = asyncio.get_running_loop().time() + seconds
        while (line := await self._line(ends)) != word.encode():
            at = line.split()
            if len(at) == 3:
                self.completed, self.failed = int(at[1]), int(at[2])
                tell()

    async def outcome(self) -> LevelOutcome:
        ends = asyncio.get_running_loop().time() + END_SECONDS
        while (line := await self._line(ends)).startswith(b"at "):
            continue
        return decode(line)

    async def _line(self, ends: float) -> bytes:
        try:
            async with within(ends - asyncio.get_running_loop().time()):
                return await self._read()
        except TimeoutError as error:
            raise BenchmarkFailed("a process of the load generator did not answer") from error

    async def _read(self) -> bytes:
        stdout = self.process.stdout
        line = b"" if stdout is None else await stdout.readline()
        if not line:
            code = await self.process.wait()
            raise BenchmarkFailed(f"a process of the load generator ended with exit code {code}")
        return line.strip()


@asynccontextmanager
async def _worker(task: PartTask) -> AsyncIterator[_Worker]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.benchmarks.builtin.load_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=SOURCE_ROOT,
        limit=MAX_LINE_BYTES,
    )
    try:
        if process.stdin is not None:
            process.stdin.write(encode(task))
        yield _Worker(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()


@dataclass(slots=True)
class Crew:
    """How many processes a level takes, by what one of them takes in tokens per second.

    `most` is how many there may be. A level that was limited by its client shows that more are
    needed, one that was not what is to be expected of the next. `texts` are those of the file
    `prompts`, which each process reads itself.
    """

    server: ChatServer
    most: int
    ceiling_tokens_per_s: float
    _tokens_per_request: dict[str, float] = field(
        default_factory=dict
    )  # tokens/s for each request at once
    prompts: Path | None = None
    texts: tuple[PromptText, ...] = ()

    def count_for(self, scenario: str, load: Load, turns: int = 1) -> int:
        """Before it is measured; 1 where nothing is known yet."""
        rate_per_s = mean_rate_per_s(load.arrivals or "")
        if rate_per_s is not None:
            return self._count(rate_per_s * turns * self._mean_output_tokens(scenario), load)
        return self._count(self._tokens_per_request.get(scenario, 0.0) * load.concurrency, load)

    def count_after(self, level: LevelResult, load: Load, count: int) -> int:
        """Return how many processes the measured level would have needed."""
        rate = level.mean_output_throughput_tokens_per_s or 0.0
        if load.arrivals is None:
            self._tokens_per_request[level.scenario] = rate / load.concurrency
        slots = self._count(rate, load)
        if LevelMark.CLIENT_LIMITED in level.marks:
            slots = max(slots, min(2 * count, self.most, load.concurrency))
        return slots

    async def run(  # a level is all of these
        self,
        scenario: str,
        load: Load,
        spec: BenchmarkSpec,
        seed: int,
        count: int,
        report: Callable[[float | None, int, int], None],
    ) -> LevelOutcome:
        """Raises BenchmarkFailed."""
        started_at: float | None = None

        def count_requests(completed: int, failed: int) -> None:
            nonlocal started_at
            now = asyncio.get_running_loop().time()
            started_at = now if started_at is None else started_at
            report(now - started_at, completed, failed)

        report(None, 0, 0)
        return await run_parts(
            self.server, scenario, load, spec, seed, count, count_requests, self.prompts
        )

    def _count(self, tokens_per_s: float, load: Load) -> int:
        processes = math.ceil(tokens_per_s / (CEILING_SHARE * self.ceiling_tokens_per_s))
        return max(1, min(processes, self.most, load.concurrency))

    def _mean_output_tokens(self, scenario: str) -> float:
        sizes = requests_of(scenario, self.texts, 0)
        rng = random.Random(0)  # noqa: S311  # no secret
        return statistics.fmean(sizes(rng).num_output_tokens for _ in range(100))
