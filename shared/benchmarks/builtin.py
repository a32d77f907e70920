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
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from schemas.benchmark import BenchmarkResult, BenchmarkSpec, BenchmarkTool, LevelResult
from shared.benchmarks.adapter import (
    LoadPhase,
    ModelNotServed,
    Progress,
    ProgressCallback,
    ServerUnreachable,
    Target,
)
from shared.benchmarks.chat_stream import ChatStream, MalformedStream
from shared.benchmarks.metrics import RequestSample, aggregate, level_result
from shared.benchmarks.traffic import (
    RequestSize,
    Scenario,
    UnsupportedTraffic,
    chat_body,
    make_prompt,
    parse_scenario,
    request_parameters,
)

TOOL_VERSION: Final = "1"
PAUSE_AFTER_ERROR_SECONDS: Final = 0.05
JSON_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Deadlines of a connection, of a whole request, and of what a level leaves behind.

    Requests in flight when a level's time is over get `drain` to finish; the rest are timeouts.
    """

    connect_seconds: float = 10.0
    request_seconds: float = 900.0
    drain_seconds: float = 30.0


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
    error_codes: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.perf_counter)
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """Why a request gave no sample: an HTTP status, or a word for what went wrong below HTTP."""

    code: str


class Builtin:
    """This module as one of the tools."""

    label = BenchmarkTool.BUILTIN

    def missing(self) -> str | None:
        """Nothing: it comes with the platform."""
        return None

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
            on_progress=on_progress,
        )


async def run_benchmark(
    spec: BenchmarkSpec,
    *,
    base_url: str,
    model_name: str,
    on_progress: ProgressCallback | None = None,
    limits: LoadLimits | None = None,
    seed: int = 0,
) -> BenchmarkResult:
    """Run every scenario at every concurrency against `base_url` (without `/v1`).

    The same seed gives the same prompts and lengths. Failed requests are counted in the result,
    even if all failed. Cancelling closes every connection. Raises UnsupportedTraffic before
    anything is sent, ServerUnreachable and ModelNotServed before the first level.
    """
    if spec.task != "text-to-text":
        raise UnsupportedTraffic(f"expected 'text-to-text', got {spec.task!r}", "$.benchmark.task")
    scenarios = [(text, parse_scenario(text)) for text in spec.traffic_scenarios]
    parameters = request_parameters(spec.additional_params)
    started = time.perf_counter()
    async with LoadGenerator(
        base_url=base_url.rstrip("/"),
        model_name=model_name,
        parameters=parameters,
        limits=limits or LoadLimits(),
        on_progress=on_progress,
        rng=random.Random(seed),  # noqa: S311  # prompts are to be repeatable, not secret
        levels_total=len(scenarios) * len(spec.num_concurrency),
    ) as generator:
        simulated = await generator.check_model()
        pairs = [
            (text, sizes, number) for text, sizes in scenarios for number in spec.num_concurrency
        ]
        levels = [
            await generator.run_level(
                Level(text, concurrency, sizes, number, spec.max_requests_per_level), spec
            )
            for number, (text, sizes, concurrency) in enumerate(pairs, start=1)
        ]
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version=TOOL_VERSION,
        simulated=simulated,
        levels=tuple(levels),
        metrics=aggregate(levels),
        elapsed_seconds=time.perf_counter() - started,
    )


@dataclass(slots=True, kw_only=True)
class LoadGenerator:
    """One server under load; owns the HTTP session while entered."""

    base_url: str
    model_name: str
    parameters: dict[str, Any]
    limits: LoadLimits
    on_progress: ProgressCallback | None
    rng: random.Random
    levels_total: int
    _session: aiohttp.ClientSession = field(init=False)

    async def __aenter__(self) -> Self:
        # One connection per request, as genai-bench does: a server that closes an idle connection
        # just when the next request is sent would otherwise look like a failing one.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self.limits.connect_seconds,
            ),
            headers=JSON_HEADERS,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def check_model(self) -> bool:
        """Whether the server calls itself simulated. Raises ServerUnreachable and ModelNotServed.

        Some servers answer for any model's name, so its presence is checked before the load.
        """
        url = f"{self.base_url}/v1/models"
        try:
            async with (
                asyncio.timeout(self.limits.connect_seconds),
                self._session.get(url) as response,
            ):
                body = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServerUnreachable(
                f"expected a list of models from {url}, got {error!r}"
            ) from error
        try:
            models = msgspec.json.decode(body, type=_Models).data
        except msgspec.DecodeError as error:
            raise ServerUnreachable(
                f"expected a list of models from {url}, got status {status}: {error}"
            ) from error
        served = {model.id: model for model in models}
        if self.model_name not in served:
            raise ModelNotServed(
                f"expected {self.model_name!r} at {self.base_url}, which serves {sorted(served)}"
            )
        return served[self.model_name].simulated

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
        )

    async def _warm_up(self, level: Level, spec: BenchmarkSpec) -> None:
        self._report(level)
        ends = level.started + spec.max_time_per_level_seconds
        remaining = spec.warmup_requests
        while remaining > 0 and time.perf_counter() < ends:
            batch = min(remaining, level.num_concurrency)
            remaining -= batch
            async with asyncio.TaskGroup() as group:
                for _ in range(batch):
                    group.create_task(self._request(level, self.limits.request_seconds))

    async def _keep_one_in_flight(self, level: Level, ends: float) -> None:
        while level.sent < level.total and (now := time.perf_counter()) < ends:
            level.sent += 1
            left_seconds = ends + self.limits.drain_seconds - now
            outcome = await self._request(level, min(self.limits.request_seconds, left_seconds))
            level.finished = time.perf_counter()
            if isinstance(outcome, RequestSample):
                level.samples.append(outcome)
            else:
                level.error_codes[outcome.code] += 1
                # A dead server refuses in microseconds; without a pause the loop would eat a core.
                await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)
            self._report(level)

    async def _request(
        self, level: Level, deadline_seconds: float
    ) -> RequestSample | RequestFailed:
        size = level.sizes(self.rng)
        prompt = make_prompt(size.num_input_tokens, self.rng)
        body = msgspec.json.encode(
            chat_body(self.model_name, prompt, size.num_output_tokens, self.parameters)
        )
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._stream(body, size)
        except TimeoutError:
            return RequestFailed(code="timeout")
        except MalformedStream:
            return RequestFailed(code="malformed")
        except aiohttp.ClientConnectorError:
            return RequestFailed(code="connect")
        except (aiohttp.ServerConnectionError, aiohttp.ClientOSError, aiohttp.ClientPayloadError):
            return RequestFailed(code="disconnected")
        except aiohttp.ClientError:
            return RequestFailed(code="protocol")

    async def _stream(self, body: bytes, size: RequestSize) -> RequestSample | RequestFailed:
        stream = ChatStream()
        started = time.perf_counter()
        async with self._session.post(
            f"{self.base_url}/v1/chat/completions", data=body
        ) as response:
            if response.status != 200:
                return RequestFailed(code=str(response.status))
            async for chunk in response.content.iter_any():
                stream.feed(chunk, time.perf_counter())
                if stream.finished_at is not None:
                    break
            failure = stream.close(time.perf_counter())
        if failure is not None:
            return RequestFailed(code=failure)
        return _sample(stream, started, size)

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


class _Model(msgspec.Struct, frozen=True):
    id: str
    simulated: bool = False


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model]


def _sample(stream: ChatStream, started: float, size: RequestSize) -> RequestSample:
    first, last = stream.first_content_at, stream.finished_at
    if first is None or last is None:
        raise RuntimeError("a stream without content or end was taken for a complete one")
    usage = stream.usage
    return RequestSample(
        ttft=first - started,
        e2e_latency=last - started,
        num_input_tokens=size.num_input_tokens if usage is None else usage.prompt_tokens,
        num_output_tokens=stream.content_chunks if usage is None else usage.completion_tokens,
        tokens_estimated=usage is None,
    )
