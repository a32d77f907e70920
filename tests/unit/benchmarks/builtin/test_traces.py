"""Loads of a trace, on an engine whose true times and prefix hits are known."""

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult
from schemas.task.trace import TraceSpec
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.builtin.generator import Builtin, LoadGenerator
from shared.benchmarks.chat_server import RequestFailed
from shared.benchmarks.genai_bench.adapter import GenaiBench
from shared.benchmarks.metrics import RequestSample
from shared.benchmarks.traced import TracedLoad, TraceForm
from shared.benchmarks.traffic import RequestSize, UnsupportedTraffic
from shared.engines.simulated.batch import ANSWER_WORD, BatchSpeed
from shared.traces.lines import TraceLine
from shared.traces.sessions import take_sessions
from tests.support.known_servers.batch_truth import idle_ttft_seconds
from tests.support.known_servers.known_engine import TRAVEL_SECONDS, KnownEngine, NoCache, make_spec
from tests.support.prefix_share import count_shared
from tests.support.virtual_time import run_virtually

SPEC = TraceSpec(path="t", block_tokens=64)
SPEED = BatchSpeed(
    step_seconds=0.01, prefill_token_seconds=0.0001, slots=16, prefix_cache=True, batch_tokens=4096
)


@dataclass(slots=True)
class RecordingEngine(KnownEngine):
    prompts: list[list[str]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def request(
        self,
        size: RequestSize,
        rng: random.Random,
        deadline_seconds: float,
        conversation: Conversation,
    ) -> RequestSample | RequestFailed:
        before = len(conversation.messages)
        place = len(self.prompts)
        self.prompts.append([])
        self.asked.append((conversation.turn, size.num_output_tokens))
        outcome = await KnownEngine.request(self, size, rng, deadline_seconds, conversation)
        said = conversation.messages[: before + 1]
        self.prompts[place] = [word for message in said for word in message["content"].split()]
        return outcome


def run(lines: list[TraceLine], **overrides: Any) -> tuple[RecordingEngine, LevelResult]:
    spec = make_spec(**{"traffic_scenarios": ("trace",), "trace": SPEC} | overrides)
    trace = take_sessions(lines, SPEC, 10_000)
    load = TracedLoad(TraceForm(block_tokens=SPEC.block_tokens), trace.sessions)

    async def measure() -> tuple[RecordingEngine, LevelResult]:
        engine = RecordingEngine(SPEED)
        generator = LoadGenerator(server=engine, cache=NoCache(), seed=7, trace=load)
        return engine, await generator.run_level(1, "trace", loads(spec)[0], spec)

    return run_virtually(measure())


def line(at: float | None, tokens: int, *blocks: int, **options: Any) -> TraceLine:
    fields: dict[str, Any] = {"timestamp": at, "input_length": tokens, "output_length": 8}
    return TraceLine(hash_ids=blocks, **fields | options)


def make_lines(count: int) -> list[TraceLine]:
    """Four prefixes of which requests share one to five blocks."""
    rng = random.Random(3)
    lines = []
    for number in range(count):
        family, depth = rng.randrange(4), rng.randrange(1, 6)
        blocks = [100 * family + place for place in range(depth)]
        tokens = 64 * depth + rng.randrange(1, 60)
        lines.append(line(100.0 * number, tokens, *blocks, 1000 + number))
    return lines


def share_sent(engine: RecordingEngine) -> float:
    answers = [[ANSWER_WORD] * tokens for _, tokens in engine.asked]
    return count_shared(engine.prompts, answers) / sum(map(len, engine.prompts))


@pytest.mark.parametrize(
    ("arrivals", "speed"), [("trace", 1), ("trace(4)", 4), ("trace(0.5)", 0.5)]
)
def test_requests_are_sent_at_scaled_times(arrivals: str, speed: float) -> None:
    engine, level = run(make_lines(60), arrivals=(arrivals,))

    assert [after - before for before, after in pairwise(engine.sent_at)] == pytest.approx(
        [0.1 / speed] * 59
    )
    assert level.num_completed_requests == 60
    assert level.arrivals == arrivals


def test_sent_prompts_share_what_the_trace_does() -> None:
    engine, level = run(make_lines(200), arrivals=("trace",))

    assert level.prefix_cache is not None
    use = level.prefix_cache
    assert use.trace_share is not None
    assert 0.5 < use.trace_share < 0.9
    assert use.asked_share == pytest.approx(use.trace_share, abs=0.005)
    assert share_sent(engine) == pytest.approx(use.trace_share, abs=0.005)
    assert LevelMark.PREFIX_SHARE not in level.marks
    now = engine.runner.scheduler
    assert now.prefix_hits / now.prefix_queries == pytest.approx(use.trace_share, abs=0.03)


@pytest.mark.parametrize("load", [{"num_concurrency": (8,)}, {"arrivals": ("poisson(20)",)}])
def test_other_loads_send_a_traces_requests_in_order(load: dict[str, Any]) -> None:
    engine, level = run(make_lines(150), **load)

    assert level.prefix_cache is not None
    assert level.prefix_cache.asked_share == pytest.approx(level.prefix_cache.trace_share, abs=0.01)
    assert len(engine.prompts) == 150
    assert share_sent(engine) == pytest.approx(level.prefix_cache.trace_share, abs=0.01)
    assert level.num_requests + level.steadiness.discarded_requests < 150  # type: ignore[union-attr]


def make_session(name: str, at: float, turns: int) -> list[TraceLine]:
    first = line(at, 200, 1, 2, 3, session_id=name)
    later = [line(None, 40, session_id=name, delay=1500.0) for _ in range(turns - 1)]
    return [first, *later]


def test_agents_wait_for_tools_with_a_growing_context() -> None:
    lines = [each for n in range(6) for each in make_session(str(n), 1000.0 * n, 4)]

    engine, level = run(lines, arrivals=("trace",), max_requests_per_level=100)

    assert level.num_completed_requests == 24
    assert [each.turn for each in level.turns] == [1, 2, 3, 4]
    assert [each.mean_input_tokens for each in level.turns] == [200, 248, 296, 344]
    assert level.prefix_cache is not None
    use = level.prefix_cache
    assert use.asked_share == pytest.approx(use.trace_share, abs=0.005)
    assert share_sent(engine) == pytest.approx(use.trace_share, abs=0.005)
    by_turn = [at for at, (turn, _) in zip(engine.sent_at, engine.asked, strict=True) if turn == 1]
    assert [after - before for before, after in pairwise(by_turn)] == pytest.approx([1.0] * 5)
    # The first has nobody beside it: an answer of eight tokens, then the wait.
    second = next(
        at for at, (turn, _) in zip(engine.sent_at, engine.asked, strict=True) if turn == 2
    )
    assert second - engine.sent_at[0] == pytest.approx(1.5 + 0.1, abs=0.03)


def test_only_what_is_new_is_computed() -> None:
    lines = [line(2000.0 * number, 192, 1, 2, 50 + number) for number in range(5)]

    _, level = run(lines, arrivals=("trace",))

    assert level.stats.ttft is not None
    cold = idle_ttft_seconds(SPEED, 192) + 2 * TRAVEL_SECONDS
    warm = idle_ttft_seconds(SPEED, 64) + 2 * TRAVEL_SECONDS
    assert level.stats.ttft.max == pytest.approx(cold, rel=0.01)
    assert level.stats.ttft.p50 == pytest.approx(warm, rel=0.01)


def test_trace_that_ends_in_the_warm_up_measures_nothing() -> None:
    engine, level = run(make_lines(3), num_concurrency=(8,), warmup_requests=20)

    assert level.num_requests == 0
    assert len(engine.prompts) == 3


SPEED_ERROR = "$.benchmark.arrivals[0]"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"trace": None}, "$.benchmark.traffic_scenarios"),
        ({"prefix_share": 0.5}, "$.benchmark.prefix_share"),
        ({"turns": 3}, "$.benchmark.turns"),
        ({"arrivals": ("trace(0)",)}, SPEED_ERROR),
        (
            {"arrivals": ("trace",), "arrival_trace_seconds": (1.0,)},
            "$.benchmark.arrival_trace_seconds",
        ),
        ({"traffic_scenarios": ("D(9,9)",)}, "$.benchmark.trace"),
    ],
)
def test_benchmark_that_makes_no_sense_is_refused(fields: dict[str, Any], path: str) -> None:
    all_fields: dict[str, Any] = {"traffic_scenarios": ("trace",), "trace": SPEC} | fields
    spec = BenchmarkSpec(**all_fields)

    with pytest.raises(UnsupportedTraffic) as refused:
        Builtin().check(spec)

    assert refused.value.path == path


def test_genai_bench_refuses_traces_in_words() -> None:
    with pytest.raises(UnsupportedTraffic, match="'builtin' or 'aiperf' for trace"):
        GenaiBench().check(BenchmarkSpec(traffic_scenarios=("trace",), trace=SPEC))
