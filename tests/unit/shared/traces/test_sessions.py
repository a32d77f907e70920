"""Sessions of a trace, and what their prompts share."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.task.trace import TraceSpec
from shared.benchmarks.traced import TraceForm, read_trace, size_of, write_trace
from shared.benchmarks.traffic import draw_prompt
from shared.datasets.bounds import DatasetRefused
from shared.traces.lines import TraceLine
from shared.traces.prefixes import Prefixes
from shared.traces.sessions import Trace, take_sessions
from tests.support.prefix_share import count_shared

BLOCK = 8
SPEC = TraceSpec(path="t", block_tokens=BLOCK)


def line(tokens: int, *blocks: int, at: float | None = 0.0, **options: Any) -> TraceLine:
    return TraceLine(input_length=tokens, output_length=3, hash_ids=blocks, timestamp=at, **options)


def take(*lines: TraceLine, spec: TraceSpec = SPEC) -> Trace:
    return take_sessions(lines, spec, 1000)


def test_leading_blocks_count_as_shared() -> None:
    trace = take(line(20, 1, 2, 3), line(19, 1, 2, 4), line(16, 2, 1), line(9, 1, 2), line(30))

    assert [turn.shared_tokens for turn in trace.turns] == [0, 16, 0, 8, 0]
    assert trace.prefix_share == pytest.approx(24 / 94)


def test_turns_carry_all_before_them() -> None:
    trace = take(
        line(16, 1, 2, session_id="a"),
        line(16, 1, 2, at=1000.0),
        line(5, at=None, session_id="a", delay=2500.0),
        line(4, at=9000.0, session_id="a"),
    )

    first, other = trace.sessions
    assert [turn.history_tokens for turn in first.turns] == [0, 19, 27]
    assert [turn.shared_tokens for turn in first.turns] == [0, 19, 27]
    assert [turn.wait_seconds for turn in first.turns] == [0, 2.5, 0]
    assert [turn.at_seconds for turn in first.turns] == [None, None, 9]
    assert (other.begins_seconds, other.turns[0].shared_tokens) == (1.0, 16)


def test_long_requests_are_left_out_with_what_follows() -> None:
    spec = TraceSpec(path="t", block_tokens=BLOCK, max_input_tokens=20, max_output_tokens=2)

    trace = take(
        line(21),
        line(16, session_id=1),
        line(9, session_id=1),
        line(1, session_id=1),
        line(20),
        spec=spec,
    )

    assert (trace.requests, trace.too_long) == (5, 3)
    assert [turn.num_input_tokens for turn in trace.turns] == [16, 20]
    assert {turn.num_output_tokens for turn in trace.turns} == {2}
    with pytest.raises(DatasetRefused, match="of 1 1 are too long"):
        take(line(21), spec=spec)
    with pytest.raises(DatasetRefused, match="an empty file"):
        take()


def test_sessions_without_an_end_are_refused() -> None:
    with pytest.raises(DatasetRefused, match="at most 1000 turns"):
        take_sessions([line(1, session_id=1)] * 1001, SPEC, 5000)


requests = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(0, 3), max_size=7)), min_size=1, max_size=30
)


def blocks_of(tokens: int, drawn: list[int]) -> list[int]:
    """Return the blocks of a prompt; one that is not full has a hash that no longer one has."""
    blocks = drawn[: -(-tokens // BLOCK)]
    if len(blocks) * BLOCK > tokens:
        blocks[-1] = 1000 + blocks[-1] * BLOCK + tokens % BLOCK
    return blocks


@given(requests, st.sampled_from([1.0, 1.3, 0.7]))
def test_made_prompts_share_what_the_trace_does(
    drawn: list[tuple[int, list[int]]], tokens_per_word: float
) -> None:
    lines = [line(tokens, *blocks_of(tokens, blocks)) for tokens, blocks in drawn]
    form = TraceForm(block_tokens=BLOCK, tokens_per_word=tokens_per_word)
    rng = random.Random(1)

    trace = take(*lines)
    prompts = [draw_prompt(size_of(turn, form, 5), rng).split() for turn in trace.turns]

    for turn, prompt in zip(trace.turns, prompts, strict=True):
        assert len(prompt) == form.count_words(turn.num_input_tokens)
    shared = count_shared(prompts)
    if tokens_per_word == 1.0:
        # Words of blocks that differ may be equal by chance.
        expected = sum(turn.shared_tokens for turn in trace.turns)
        assert expected <= shared <= expected + len(prompts)


def test_prefixes_count_only_behind_the_same_ones() -> None:
    prefixes = Prefixes()

    assert prefixes.count([("a", 2), ("b", 3)])[0] == 0
    shared, chain = prefixes.count([("a", 2), ("b", 4)])
    assert shared == 2
    assert prefixes.count([("b", 3)])[0] == 0
    assert prefixes.count([("x", 1)], chain)[0] == 0
    assert prefixes.count([("a", 2), ("b", 4), ("x", 1)])[0] == 7


def test_written_trace_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trace = take(line(16, 1, 2, session_id="a"), line(5, session_id="a", delay=3.0))
    form = TraceForm(block_tokens=BLOCK, tokens_per_word=1.25)

    write_trace(path, form, trace.sessions)

    load = read_trace(path)
    assert (load.form, load.sessions) == (form, trace.sessions)
    assert read_trace(None).sessions == ()
