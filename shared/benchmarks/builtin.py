"""The built-in load generator: closed-loop streaming chat completions against one server.

For hosts without genai-bench. A level keeps exactly `num_concurrency` requests in flight until
`max_requests_per_level` have been sent or `max_time_per_level_seconds` have passed.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from schemas.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.adapter import LoadPhase, Progress, ProgressCallback, Target
from shared.benchmarks.chat_server import ChatServer, LoadLimits
from shared.benchmarks.metrics import FailedRequest, RequestSample, aggregate, level_result
from shared.benchmarks.traffic import (
    Scenario,
    UnsupportedTraffic,
    parse_scenario,
    request_parameters,
)

TOOL_VERSION: Final = "1"
PAUSE_AFTER_ERROR_SECONDS: Final = 0.05


@dataclass(slots=True)
class Level:
    """One scenario at one concurrency, while it runs."""

    scenario: str
    num_concurrency: int
    sizes: Scenario
    level_no: int
    total: int
    phase: LoadPhase = LoadPhase.WARMING_UP
    sent: int = 0
    samples: list[RequestSample] = field(default_factory=list)
    failed: list[FailedRequest] = field(default_factory=list)
    error_codes: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.perf_counter)
    finished: float = 0.0


class Builtin:
    """This module as one of the tools."""

    label = BenchmarkTool.BUILTIN

    def missing(self) -> str | None:
        """Nothing: it comes with the platform."""
        return None

    def check(self, spec: BenchmarkSpec) -> None:
        """It makes chat completions of the kinds D, N and U."""
        if spec.task != "text-to-text":
            raise UnsupportedTraffic(
                f"expected 'text-to-text', got {spec.task!r}", "$.benchmark.task"
            )
        for scenario in spec.traffic_scenarios:
            parse_scenario(scenario)
        request_parameters(spec.additional_params)

    async def run(
        self,
        spec: BenchmarkSpec,
        target: Target,
        *,
        directory: Path,
        on_progress: ProgressCallback | None = None,
    ) -> BenchmarkResult:
        """As `run_benchmark`; nothing is written to `directory`."""
        del directory
        return await run_benchmark(
            spec,
            base_url=target.base_url,
            model_name=target.model_name,
            api_key=target.api_key,
            on_progress=on_progress,
        )


async def run_benchmark(
    spec: BenchmarkSpec,
    *,
    base_url: str,
    model_name: str,
    api_key: str | None = None,
    on_progress: ProgressCallback | None = None,
    limits: LoadLimits | None = None,
    seed: int = 0,
) -> BenchmarkResult:
    """Run every scenario at every concurrency against `base_url` (without `/v1`).

    The same seed gives the same prompts and lengths. Failed requests are counted in the result,
    even if all failed. Cancelling closes every connection. Raises UnsupportedTraffic before
    anything is sent, ServerUnreachable and ModelNotServed before the first level.
    """
    Builtin().check(spec)
    pairs = [(text, number) for text in spec.traffic_scenarios for number in spec.num_concurrency]
    started = time.perf_counter()
    async with ChatServer(
        base_url=base_url,
        model_name=model_name,
        api_key=api_key,
        parameters=request_parameters(spec.additional_params),
        limits=limits or LoadLimits(),
    ) as server:
        simulated = (await server.served_model()).simulated
        generator = LoadGenerator(
            server=server,
            on_progress=on_progress,
            rng=random.Random(seed),  # noqa: S311  # prompts are to be repeatable, not secret
            levels_total=len(pairs),
        )
        levels = [
            await generator.run_level(
                Level(text, concurrency, parse_scenario(text), number, spec.max_requests_per_level),
                spec,
            )
            for number, (text, concurrency) in enumerate(pairs, start=1)
        ]
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version=TOOL_VERSION,
        simulated=simulated,
        levels=tuple(levels),
        metrics=aggregate(levels, spec.max_error_rate),
        elapsed_seconds=time.perf_counter() - started,
    )


@dataclass(slots=True, kw_only=True)
class LoadGenerator:
    """Levels of load on one server."""

    server: ChatServer
    on_progress: ProgressCallback | None
    rng: random.Random
    levels_total: int

    async def run_level(self, level: Level, spec: BenchmarkSpec) -> LevelResult:
        """Warm up, then measure."""
        await self._warm_up(level, spec)
        level.phase = LoadPhase.MEASURING
        started_at = datetime.now(UTC)
        level.started = time.perf_counter()
        self._report(level)
        ends = level.started + spec.max_time_per_level_seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(min(level.num_concurrency, level.total)):
                group.create_task(self._keep_one_in_flight(level, ends))
        return level_result(
            scenario=level.scenario,
            num_concurrency=level.num_concurrency,
            started_at=started_at,
            run_duration=max(0.0, level.finished - level.started),
            samples=level.samples,
            error_codes=level.error_codes,
            failed=level.failed,
        )

    async def _warm_up(self, level: Level, spec: BenchmarkSpec) -> None:
        self._report(level)
        await warm_up(
            self.server,
            level.sizes,
            self.rng,
            requests=spec.warmup_requests,
            at_once=level.num_concurrency,
            limit_seconds=spec.max_time_per_level_seconds,
        )

    async def _keep_one_in_flight(self, level: Level, ends: float) -> None:
        while level.sent < level.total and (now := time.perf_counter()) < ends:
            level.sent += 1
            limits = self.server.limits
            deadline_seconds = min(limits.request_seconds, ends + limits.drain_seconds - now)
            outcome = await self.server.request(level.sizes(self.rng), self.rng, deadline_seconds)
            level.finished = time.perf_counter()
            if isinstance(outcome, RequestSample):
                level.samples.append(outcome)
            else:
                level.error_codes[outcome.code] += 1
                seconds = level.finished - now
                level.failed.append(FailedRequest(code=outcome.code, seconds=seconds))
                # A dead server refuses in microseconds; without a pause the loop would eat a core.
                await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)
            self._report(level)

    def _report(self, level: Level) -> None:
        if self.on_progress is not None:
            self.on_progress(
                Progress(
                    phase=level.phase,
                    level_no=level.level_no,
                    levels_total=self.levels_total,
                    scenario=level.scenario,
                    num_concurrency=level.num_concurrency,
                    completed=len(level.samples),
                    failed=level.error_codes.total(),
                    total=level.total,
                    elapsed_seconds=time.perf_counter() - level.started,
                )
            )


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
