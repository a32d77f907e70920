"""The load generator on an engine of known truth, in virtual time."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from schemas.task.benchmark import (
    BenchmarkSpec,
    LevelResult,
)
from schemas.task.prefix_cache import CacheReset, PrefixCacheUse
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.builtin.generator import LoadGenerator
from shared.benchmarks.builtin.prefix_cache import Start
from shared.benchmarks.chat_server import LoadLimits, RequestFailed
from shared.benchmarks.levels.level_choice import next_level
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.traffic import RequestSize, draw_pieces
from shared.engines.simulated.batch import ANSWER_WORD, BatchSpeed
from shared.engines.simulated.batch_server import BatchRunner
from tests.support.known_servers.batch_truth import TrueTimes, closed_loop
from tests.support.virtual_time import run_virtually

TRAVEL_SECONDS = 0.0007
SIZE = (200, 12)
# Equal requests in a closed loop keep the order in which they began; of these the truth is one.
VARIED = "U(150,250)/(8,16)"
SPEED = BatchSpeed(
    step_seconds=0.01,
    prefill_token_seconds=0.00005,
    kv_token_seconds=0.0000002,
    slots=16,
    batch_tokens=512,
)


@dataclass(slots=True)
class KnownEngine:
    """In this process, a travel away."""

    speed: BatchSpeed
    limits: LoadLimits = field(default_factory=LoadLimits)
    sent_at: list[float] = field(default_factory=list)
    runner: BatchRunner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = BatchRunner(self.speed)

    async def request(
        self,
        size: RequestSize,
        rng: random.Random,
        deadline_seconds: float,
        conversation: Conversation,
    ) -> RequestSample | RequestFailed:
        assert deadline_seconds > 0
        loop = asyncio.get_running_loop()
        sent, first = loop.time(), None
        self.sent_at.append(sent)
        words = [str(rng.getrandbits(64))] * size.num_input_tokens
        conversation.ask(draw_pieces(size, rng) if size.num_words else words)
        prompt = [word for said in conversation.messages for word in said["content"].split()]
        await asyncio.sleep(TRAVEL_SECONDS)
        async for _ in self.runner.generate(prompt, size.num_output_tokens):
            if first is None:
                first = loop.time() + TRAVEL_SECONDS
        await asyncio.sleep(TRAVEL_SECONDS)
        assert first is not None
        sample = RequestSample(
            ttft=first - sent,
            e2e_latency=loop.time() - sent,
            num_input_tokens=len(prompt),
            num_output_tokens=size.num_output_tokens,
            turn=conversation.turn if conversation.turns > 1 else None,
            reusable_tokens=conversation.count_reusable(len(prompt), 0),
        )
        conversation.answer(" ".join([ANSWER_WORD] * size.num_output_tokens), sample)
        return sample


class NoCache:
    async def begin(self) -> Start:
        return Start(CacheReset.UNSUPPORTED)

    async def use(self, start: Start, requests: int) -> PrefixCacheUse:
        assert requests
        return PrefixCacheUse(reset=start.reset)


def make_spec(**overrides: Any) -> BenchmarkSpec:  # any field
    fields: dict[str, Any] = {
        "traffic_scenarios": (f"D({SIZE[0]},{SIZE[1]})",),
        "max_requests_per_level": 300,
        "max_time_per_level_seconds": 100_000.0,
    }
    return BenchmarkSpec(**fields | overrides)


def measure(
    spec: BenchmarkSpec, sent_at: list[float] | None = None, *, speed: BatchSpeed = SPEED
) -> LevelResult:
    """One level; `sent_at` gets the time of every request, measured or not."""

    async def run() -> LevelResult:
        engine = KnownEngine(speed, sent_at=[] if sent_at is None else sent_at)
        generator = LoadGenerator(server=engine, cache=NoCache(), seed=7)
        return await generator.run_level(1, spec.traffic_scenarios[0], loads(spec)[0], spec)

    return run_virtually(run())


def measure_all(spec: BenchmarkSpec) -> list[LevelResult]:
    """Every level, as a benchmark chooses them."""

    async def run() -> list[LevelResult]:
        generator = LoadGenerator(server=KnownEngine(SPEED), cache=NoCache(), seed=7)
        levels: list[LevelResult] = []
        while (following := next_level(spec, levels)) is not None:
            levels.append(await generator.run_level(len(levels) + 1, *following, spec))
        return levels

    return run_virtually(run())


def varied_closed_loop(clients: int) -> list[TrueTimes]:
    rng = random.Random(3)
    return closed_loop(
        SPEED,
        lambda: (rng.randint(150, 250), rng.randint(8, 16)),
        clients=clients,
        requests=6000,
        travel_seconds=TRAVEL_SECONDS,
    )[500:]
