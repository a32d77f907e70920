"""Conversations of several turns, on an engine whose true times and prefix hits are known."""

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from schemas.task.benchmark import BenchmarkSpec, LevelResult
from shared.benchmarks.arrivals import loads
from shared.benchmarks.builtin.conversation import Conversation
from shared.benchmarks.builtin.generator import Builtin, LoadGenerator
from shared.benchmarks.chat_server import RequestFailed
from shared.benchmarks.genai_bench.adapter import GenaiBench
from shared.benchmarks.levels.request_columns import unpack_requests
from shared.benchmarks.metrics import RequestSample, pool_levels
from shared.benchmarks.traffic import RequestSize, UnsupportedTraffic
from shared.engines.simulated.batch import BLOCK_TOKENS, BatchSpeed
from tests.support.known_servers.batch_truth import idle_ttft_seconds
from tests.support.known_servers.known_engine import TRAVEL_SECONDS, KnownEngine, NoCache, make_spec
from tests.support.virtual_time import run_virtually

NEW, ANSWER, TURNS = 160, 32, 4
SPEED = BatchSpeed(
    step_seconds=0.01, prefill_token_seconds=0.0001, slots=16, prefix_cache=True, batch_tokens=4096
)


@dataclass(slots=True)
class WatchedEngine(KnownEngine):
    """Every `failing`-th request gets no answer."""

    failing: int = 0
    asked: list[tuple[Conversation, int]] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    most_at_once: int = 0

    async def request(
        self,
        size: RequestSize,
        rng: random.Random,
        deadline_seconds: float,
        conversation: Conversation,
    ) -> RequestSample | RequestFailed:
        self.asked.append((conversation, conversation.turn))
        assert id(conversation) not in self.running, "a turn was sent before its answer"
        if self.failing and len(self.asked) % self.failing == 0:
            return RequestFailed(code="500")
        self.running.add(id(conversation))
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            return await KnownEngine.request(self, size, rng, deadline_seconds, conversation)
        finally:
            self.running.discard(id(conversation))


def converse(
    *,
    failing: int = 0,
    **overrides: Any,  # any field of a spec
) -> tuple[WatchedEngine, LevelResult]:
    scenario = f"D({NEW},{ANSWER})"
    spec = make_spec(**{"traffic_scenarios": (scenario,), "turns": TURNS} | overrides)

    async def run() -> tuple[WatchedEngine, LevelResult]:
        engine = WatchedEngine(SPEED, failing=failing)
        generator = LoadGenerator(server=engine, cache=NoCache(), seed=7)
        return engine, await generator.run_level(1, scenario, loads(spec)[0], spec)

    return run_virtually(run())


def cached_tokens(turn: int) -> int:
    """What an engine has of a turn's prompt: whole blocks of all before it, which has no cache of
    the newest token.
    """
    history = (turn - 1) * (NEW + ANSWER)
    return max(0, history - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def prompt_tokens(turn: int) -> int:
    return turn * NEW + (turn - 1) * ANSWER


def test_each_turn_carries_all_before_it() -> None:
    _, level = converse(max_requests_per_level=80)

    assert [each.turn for each in level.turns] == [1, 2, 3, 4]
    for each in level.turns:
        computed = prompt_tokens(each.turn) - cached_tokens(each.turn)
        truth = idle_ttft_seconds(SPEED, computed) + 2 * TRAVEL_SECONDS
        assert each.mean_input_tokens == prompt_tokens(each.turn)
        assert each.p99_ttft == pytest.approx(truth)
    assert level.requests is not None
    rows = unpack_requests(level.requests)
    told = {each.turn: each.num_completed_requests for each in level.turns}
    # The first conversation is a short one.
    assert Counter(row.turn for row in rows) == told == {1: 21, 2: 20, 3: 20, 4: 19}


def test_sent_and_found_prefix_are_compared() -> None:
    turns = range(1, TURNS + 1)
    sent = sum(map(prompt_tokens, turns))
    asked = sum((turn - 1) * (NEW + ANSWER) for turn in turns) / sent

    engine, level = converse(num_concurrency=(8,), max_requests_per_level=400)

    now = engine.runner.scheduler
    assert level.prefix_cache is not None
    assert level.prefix_cache.asked_share == pytest.approx(asked, rel=0.02)
    found = sum(map(cached_tokens, turns)) / sent
    assert now.prefix_hits / now.prefix_queries == pytest.approx(found, rel=0.02)
    assert level.set_aside is None


def test_closed_loop_keeps_its_conversations() -> None:
    engine, level = converse(num_concurrency=(8,), max_requests_per_level=400)

    assert engine.most_at_once == 8
    assert level.marks == ()
    assert level.steadiness is not None
    assert level.steadiness.discarded_requests == 0
    # Had all begun together, each would wait for eight prompts, and the turns would come in waves.
    by_turn = {each.turn: each.num_completed_requests for each in level.turns}
    assert set(by_turn) == {1, 2, 3, 4}
    assert max(by_turn.values()) - min(by_turn.values()) <= 8
    assert max(Counter(turn for _, turn in engine.asked[100:132]).values()) <= 12


def test_conversations_arrive_and_continue() -> None:
    engine, level = converse(
        arrivals=("constant(2)",), think_seconds=3.0, max_requests_per_level=400
    )

    assert level.requests_per_second == pytest.approx(2 * TURNS, rel=0.05)
    assert level.marks == ()
    by_turn = [each.num_completed_requests for each in level.turns]
    assert by_turn == pytest.approx([100] * TURNS, abs=10)
    begun = [at for (_, turn), at in zip(engine.asked, engine.sent_at, strict=True) if turn == 1]
    gaps = [later - before for before, later in pairwise(begun)]
    assert gaps == pytest.approx([0.5] * len(gaps))


def test_thinking_time_separates_turns() -> None:
    engine, level = converse(think_seconds=7.0, max_requests_per_level=40)

    own: dict[int, list[float]] = {}
    for (conversation, _), at in zip(engine.asked, engine.sent_at, strict=True):
        own.setdefault(id(conversation), []).append(at)
    whole = [times for times in own.values() if len(times) == TURNS]
    gaps = [later - at for times in whole for at, later in pairwise(times)]
    assert len(gaps) > 20
    assert all(7.0 < gap < 8.0 for gap in gaps)
    assert level.steadiness is not None
    assert level.steadiness.little_error == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("load", [{}, {"arrivals": ("constant(2)",)}])
def test_a_turn_that_failed_ends_its_conversation(load: dict[str, Any]) -> None:
    engine, level = converse(failing=7, max_requests_per_level=100, **load)

    ends = {id(asked[0]): asked for asked in engine.asked}
    failed = [engine.asked[place] for place in range(6, len(engine.asked), 7)]
    assert level.num_error_requests == pytest.approx(100 / 7, abs=2)
    assert all(ends[id(conversation)][1] == turn for conversation, turn in failed)


def test_repeats_are_one_load_by_turn_as_well() -> None:
    _, level = converse(max_requests_per_level=40)

    [together] = pool_levels([level, level])

    assert [each.num_completed_requests for each in together.turns] == [22, 20, 20, 18]
    assert [each.mean_ttft for each in together.turns] == pytest.approx(
        [each.mean_ttft for each in level.turns], abs=1e-6
    )


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"think_seconds": 1.0}, "$.benchmark.turns"),
        ({"turns": 3, "think_seconds": 50.0}, "$.benchmark.think_seconds"),
        ({"turns": 64, "num_concurrency": (1, 2, 3, 4, 5)}, "$.benchmark.turns"),
    ],
)
def test_unmeasurable_conversations_are_refused(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsupportedTraffic) as refused:
        Builtin().check(make_spec(max_time_per_level_seconds=100.0, **overrides))

    assert refused.value.path == path


def test_genai_bench_has_no_conversations() -> None:
    with pytest.raises(UnsupportedTraffic, match="builtin") as refused:
        GenaiBench().check(BenchmarkSpec(turns=2))

    assert refused.value.path == "$.benchmark.turns"
