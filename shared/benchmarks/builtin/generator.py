"""The built-in load generator: streaming chat completions, embeddings or rerank at one server.

For hosts without genai-bench, and for what genai-bench has not: timed arrivals, a measurement that
begins and ends under load, and marks on what cannot be believed.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from schemas.task.modality import Modality
from shared.benchmarks.arrivals import Load, loads
from shared.benchmarks.builtin.client_ceiling import ceiling_tokens_per_s, default_processes
from shared.benchmarks.builtin.level_load import LevelLoad, Requests
from shared.benchmarks.builtin.load_processes import Crew
from shared.benchmarks.builtin.prefix_cache import (
    PrefixCache,
    ServerPrefixCache,
    level_seed,
    with_cache_use,
)
from shared.benchmarks.chat_server import ChatServer, LoadLimits
from shared.benchmarks.levels.level_choice import metrics_of, next_level
from shared.benchmarks.levels.measured_level import LevelOutcome, make_measured_level
from shared.benchmarks.prompts import read_prompts, requests_of
from shared.benchmarks.tools.adapter import (
    NO_FILES,
    BenchmarkFailed,
    LoadFiles,
    LoadPhase,
    Progress,
    ProgressCallback,
    Target,
)
from shared.benchmarks.tools.spec_check import check_generated, preflight_size
from shared.benchmarks.traced import NO_TRACE, TRACE, TracedLoad, read_trace
from shared.benchmarks.traffic import (
    PromptText,
    Scenario,
    request_parameters,
    with_shared_prefix,
)

TOOL_VERSION: Final = "2"
FEWEST_CLIENTS: Final = 16  # at once, from which on one process may be what limits


class Builtin:
    """This module as one of the tools."""

    label = BenchmarkTool.BUILTIN

    def missing(self) -> str | None:
        """Return None: the built-in generator needs no installation."""
        return None

    def check(self, spec: BenchmarkSpec) -> None:
        """Raises UnsupportedTraffic for what it cannot make."""
        check_generated(spec)

    async def run(
        self,
        spec: BenchmarkSpec,
        target: Target,
        *,
        directory: Path,
        on_progress: ProgressCallback | None = None,
        files: LoadFiles = NO_FILES,
    ) -> BenchmarkResult:
        """Run the benchmark as `run_benchmark` does; nothing is written to `directory`."""
        del directory
        return await run_benchmark(
            spec,
            base_url=target.base_url,
            model_name=target.model_name,
            api_key=target.api_key,
            certificate=target.certificate,
            on_progress=on_progress,
            files=files,
        )


async def run_benchmark(
    spec: BenchmarkSpec,
    *,
    base_url: str,
    model_name: str,
    api_key: str | None = None,
    certificate: Path | None = None,
    on_progress: ProgressCallback | None = None,
    limits: LoadLimits | None = None,
    seed: int | None = None,
    processes: int | None = None,
    files: LoadFiles = NO_FILES,
) -> BenchmarkResult:
    """Run every scenario at every concurrency against `base_url` (without `/v1`).

    The same seed gives the same prompts and lengths; without one they are the same only where the
    engine's prefix cache was seen to be empty before, new ones elsewhere. Failed requests are
    counted in the result, even if all failed. Cancelling closes every connection. Raises
    UnsupportedTraffic before anything is sent, ServerUnreachable and ModelNotServed before the
    first level.

    A level that one process would limit is made by several, at most `processes`: by default a
    quarter of the processors, as the engine needs them too. One alone sends a trace, whose requests
    share their beginnings.
    """
    Builtin().check(spec)
    most = default_processes() if processes is None else processes
    most = 1 if spec.trace is not None else most
    ceiling = await _ceiling() if most > 1 and _may_be_large(spec) else None
    started = time.perf_counter()
    texts = await asyncio.to_thread(read_prompts, files.prompts)
    trace = await asyncio.to_thread(read_trace, files.trace)
    async with ChatServer(
        base_url=base_url,
        model_name=model_name,
        api_key=api_key,
        certificate=certificate,
        parameters=request_parameters(spec.additional_params, spec.modality),
        adapters=spec.adapters,
        limits=limits or LoadLimits(),
    ) as server:
        simulated = (await server.find_model()).simulated
        if spec.modality is not Modality.TEXT:
            # Most servers answer chats alone: what this one lacks is said before the load.
            await server.check_answer(spec.max_time_per_level_seconds, preflight_size(spec))
        probes = random.Random(secrets.randbits(64))  # noqa: S311  # prompts that none has sent
        generator = LoadGenerator(
            server=server,
            cache=ServerPrefixCache(server, probes, modality=spec.modality),
            on_progress=on_progress,
            levels_total=spec.num_levels,
            seed=seed,
            crew=None
            if ceiling is None
            else Crew(server, most, ceiling, prompts=files.prompts, texts=texts),
            texts=texts,
            trace=trace,
        )
        levels: list[LevelResult] = []
        while (following := next_level(spec, levels)) is not None:
            levels.append(await generator.run_level(len(levels) + 1, *following, spec))
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version=TOOL_VERSION,
        simulated=simulated,
        levels=tuple(levels),
        metrics=metrics_of(spec, levels),
        elapsed_seconds=time.perf_counter() - started,
    )


@dataclass(slots=True, kw_only=True)
class LoadGenerator:
    """Levels of load on one server."""

    server: Requests
    cache: PrefixCache
    on_progress: ProgressCallback | None = None
    levels_total: int = 1
    seed: int | None = None
    crew: Crew | None = None
    texts: tuple[PromptText, ...] = ()
    trace: TracedLoad = NO_TRACE

    async def run_level(
        self, number: int, scenario: str, load: Load, spec: BenchmarkSpec
    ) -> LevelResult:
        """Empty the prefix cache, warm up, measure; again with more processes where they were too
        few, as far as there are more.
        """
        crew = self.crew
        count = 1 if crew is None else crew.count_for(scenario, load, spec.turns)
        while True:
            level = await self._run_level(number, scenario, load, spec, count)
            more = count if crew is None else crew.count_after(level, load, count)
            if more <= count:
                return level
            count = more

    async def _run_level(
        self, number: int, scenario: str, load: Load, spec: BenchmarkSpec, processes: int
    ) -> LevelResult:
        start = await self.cache.begin()
        seed = self.seed
        if seed is None:
            seed = level_seed(f"{scenario} {load}", spec.seed, start.reset)
        if processes > 1 and self.crew is not None:
            outcome = await self.crew.run(
                scenario, load, spec, seed, processes, self._reporter(number, scenario, load, spec)
            )
        else:
            outcome = await self._run_here(number, scenario, load, spec, seed)
        measured = msgspec.structs.replace(
            make_measured_level(scenario, outcome, spec), client_processes=processes, seed=seed
        )
        use = await self.cache.use(start, outcome.sent_in_all)
        return with_cache_use(measured, use, outcome.prompts, is_warm=spec.is_warm)

    async def _run_here(
        self, number: int, scenario: str, load: Load, spec: BenchmarkSpec, seed: int
    ) -> LevelOutcome:
        rng = random.Random(seed)  # noqa: S311  # prompts are to be repeatable, not secret
        report = self._reporter(number, scenario, load, spec)

        def wake() -> None:
            if level.started_at is None:
                report(None, 0, 0)
            else:
                report(level.elapsed_seconds, len(level.records) - level.failed, level.failed)

        level = LevelLoad(
            server=self.server,
            load=load,
            sizes=None
            if scenario == TRACE
            else with_shared_prefix(
                requests_of(scenario, self.texts, seed, batch_size=spec.batch_size),
                spec.prefix_share,
                rng,
            ),
            rng=rng,
            spec=spec,
            trace=self.trace,
            seed=seed,
            on_change=wake,
        )
        await level.run()
        return level.outcome()

    def _reporter(
        self, number: int, scenario: str, load: Load, spec: BenchmarkSpec
    ) -> Callable[[float | None, int, int], None]:
        """Takes seconds since measuring began (None: it warms up), completed and failed."""

        def report(elapsed_seconds: float | None, completed: int, failed: int) -> None:
            if self.on_progress is None:
                return
            is_measuring = elapsed_seconds is not None
            self.on_progress(
                Progress(
                    phase=LoadPhase.MEASURING if is_measuring else LoadPhase.WARMING_UP,
                    level_no=number,
                    levels_total=self.levels_total,
                    scenario=scenario,
                    num_concurrency=load.concurrency,
                    completed=completed,
                    failed=failed,
                    total=spec.max_requests_per_level,
                    elapsed_seconds=elapsed_seconds or 0.0,
                    arrivals=load.arrivals,
                )
            )

        return report


async def _ceiling() -> float | None:
    """Return the tokens/s that one process can take; None if that could not be measured."""
    try:
        return await ceiling_tokens_per_s()
    except BenchmarkFailed:
        return None


def _may_be_large(spec: BenchmarkSpec) -> bool:
    """True if the load may be more than one process can take, so that measuring its ceiling
    pays.
    """
    most = max((load.concurrency for load in loads(spec)), default=1)
    return most >= FEWEST_CLIENTS or spec.load_search is not None


async def warm_up(
    server: ChatServer,
    sizes: Scenario,
    rng: random.Random,
    *,
    requests: int,
    at_once: int,
    limit_seconds: float,
) -> None:
    """Send requests that count nowhere; none begins after the limit."""
    ends = time.perf_counter() + limit_seconds
    while requests > 0 and time.perf_counter() < ends:
        batch = min(requests, at_once)
        requests -= batch
        async with asyncio.TaskGroup() as group:
            for _ in range(batch):
                group.create_task(server.request(sizes(rng), rng, server.limits.request_seconds))
