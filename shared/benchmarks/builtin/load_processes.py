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
from typing import Final

from msgspec.structs import replace

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from shared.benchmarks.arrivals import Load, mean_rate_per_s
from shared.benchmarks.builtin.load_worker import PartTask, decoded, encoded
from shared.benchmarks.chat_server import ChatServer
from shared.benchmarks.levels.measured_level import LevelOutcome, PromptTokens
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.benchmarks.traffic import parse_scenario
from shared.paths import SOURCE_ROOT
from shared.waiting import within

READY_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0  # from a level's last answer to the outcome
HEAD_START_SECONDS: Final = 0.2
CEILING_SHARE: Final = 0.5  # of what one process can take, that it is to take
LARGEST_LINE_BYTES: Final = 256 * 2**20

OnProgress = Callable[[int, int], None]


def parts(load: Load, spec: BenchmarkSpec, count: int) -> list[tuple[Load, BenchmarkSpec]]:
    """The load and the counts of a level, shared out."""
    share = replace(
        spec,
        warmup_requests=math.ceil(spec.warmup_requests / count),
        max_requests_per_level=math.ceil(spec.max_requests_per_level / count),
    )
    each, more = divmod(load.concurrency, count)
    return [(Load(each + (number < more), load.arrivals), share) for number in range(count)]


def merged(load: Load, outcomes: Sequence[LevelOutcome]) -> LevelOutcome:
    """Of the time in which all of them measured; a trace is measured as a whole."""
    latest = max(outcomes, key=lambda each: each.started)
    ends = [each.window_ends for each in outcomes if each.window_ends is not None]
    started, window_ends = latest.started, min(ends, default=None)
    if load.arrivals == "trace" or (window_ends is not None and window_ends <= started):
        latest = min(outcomes, key=lambda each: each.started)
        started, window_ends = latest.started, max(ends, default=None)
    return LevelOutcome(
        load=load,
        records=[
            record
            for each in outcomes
            for record in each.records
            if started <= record.sent and (window_ends is None or record.sent <= window_ends)
        ],
        lags=[lag for each in outcomes for lag in each.lags],
        started_at=latest.started_at,
        started=started,
        window_ends=window_ends,
        in_flight_mean=sum(each.in_flight_mean or 0.0 for each in outcomes),
        rate_per_s=sum(each.rate_per_s for each in outcomes),
        sent_in_all=sum(each.sent_in_all for each in outcomes),
        prompts=PromptTokens.of_all(each.prompts for each in outcomes),
    )


async def run_parts(  # a level is all of these
    server: ChatServer,
    scenario: str,
    load: Load,
    spec: BenchmarkSpec,
    seed: int,
    count: int,
    on_progress: OnProgress,
) -> LevelOutcome:
    """Cancelling ends the processes. Raises BenchmarkFailed if one of them ends."""
    tasks = [
        PartTask(
            base_url=server.base_url,
            model_name=server.model_name,
            api_key=server.api_key,
            parameters=server.parameters,
            limits=server.limits,
            scenario=scenario,
            load=own_load,
            spec=own_spec,
            seed=seed,
            number=number,
            of=count,
        )
        for number, (own_load, own_spec) in enumerate(parts(load, spec, count))
    ]
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_worker(task)) for task in tasks]

        def tell() -> None:
            on_progress(
                sum(each.completed for each in workers), sum(each.failed for each in workers)
            )

        await asyncio.gather(*(each.until("ready", READY_SECONDS) for each in workers))
        origin = asyncio.get_running_loop().time() + HEAD_START_SECONDS
        for each in workers:
            each.say(f"go {origin!r}")
        # A part warms up and measures for so long at most, until the next is sent, and drains.
        level_seconds = 2 * spec.max_time_per_level_seconds + spec.think_seconds
        limit = level_seconds + server.limits.drain_seconds + END_SECONDS
        await asyncio.gather(*(each.until("over", limit, tell) for each in workers))
        for each in workers:
            each.say("end")
        outcomes = await asyncio.gather(*(each.outcome() for each in workers))
    return merged(load, outcomes)


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
        return decoded(line)

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
        limit=LARGEST_LINE_BYTES,
    )
    try:
        if process.stdin is not None:
            process.stdin.write(encoded(task))
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
    needed, one that was not what is to be expected of the next.
    """

    server: ChatServer
    most: int
    ceiling_tokens_per_s: float
    _seen: dict[str, float] = field(default_factory=dict)  # tokens/s for each request at once

    def count_for(self, scenario: str, load: Load, turns: int = 1) -> int:
        """Before it is measured; 1 where nothing is known yet."""
        rate_per_s = mean_rate_per_s(load.arrivals or "")
        if rate_per_s is not None:
            return self._count(rate_per_s * turns * _mean_output_tokens(scenario), load)
        return self._count(self._seen.get(scenario, 0.0) * load.concurrency, load)

    def count_after(self, level: LevelResult, load: Load, count: int) -> int:
        """How many it should have been."""
        rate = level.mean_output_throughput_tokens_per_s
        if load.arrivals is None:
            self._seen[level.scenario] = rate / load.concurrency
        wanted = self._count(rate, load)
        if LevelMark.CLIENT_LIMITED in level.marks:
            wanted = max(wanted, min(2 * count, self.most, load.concurrency))
        return wanted

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
        began: float | None = None

        def measured(completed: int, failed: int) -> None:
            nonlocal began
            now = asyncio.get_running_loop().time()
            began = now if began is None else began
            report(now - began, completed, failed)

        report(None, 0, 0)
        return await run_parts(self.server, scenario, load, spec, seed, count, measured)

    def _count(self, tokens_per_s: float, load: Load) -> int:
        wanted = math.ceil(tokens_per_s / (CEILING_SHARE * self.ceiling_tokens_per_s))
        return max(1, min(wanted, self.most, load.concurrency))


def _mean_output_tokens(scenario: str) -> float:
    sizes, rng = parse_scenario(scenario), random.Random(0)  # noqa: S311  # no secret
    return statistics.fmean(sizes(rng).num_output_tokens for _ in range(100))
