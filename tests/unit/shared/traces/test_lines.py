"""Traces that are read, and those that are refused in words."""

import json
import tracemalloc
from collections.abc import Iterator

import pytest

from schemas.task.trace import TraceSpec
from shared.datasets.bounds import DatasetRefused, refusing_trace
from shared.datasets.pieces import decode, unpack
from shared.traces.lines import TraceLine, read_lines
from shared.traces.sessions import take_sessions

GOOD = '{"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n'


def read(text: str, block_tokens: int = 512) -> list[TraceLine]:
    return list(read_lines(decode(unpack([text.encode()])), block_tokens))


def test_lines_of_mooncakes_form_are_read() -> None:
    [line, session] = read(
        GOOD + "\n" + '{"session_id": "a", "delay": 2.5, "input_length": 7, "output_length": 0}\n'
    )

    assert (line.timestamp, line.input_length, line.output_length) == (5, 600, 9)
    assert line.hash_ids == (1, 2)
    assert (session.session_id, session.delay, session.timestamp) == ("a", 2.5, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json\n", "a request of a trace in line 1"),
        ("[" * 100_000 + "\n", "a request of a trace in line 1"),
        (GOOD + '{"timestamp": 6}\n', "in line 2"),
        (GOOD + GOOD.replace("5", "4", 1), "sort the trace by its timestamp"),
        (GOOD.replace("5", "-1", 1), "`$.timestamp`"),
        (GOOD.replace("5", "1e300", 1), "`$.timestamp`"),
        (GOOD.replace("600", "2000001"), "`$.input_length`"),
        (GOOD.replace("600", "0"), "`$.input_length`"),
        (GOOD.replace("600", "-7"), "`$.input_length`"),
        (GOOD.replace("600", "9" * 400), "in line 1"),
        (GOOD.replace("9", "2000001"), "`$.output_length`"),
        (GOOD.replace("600", "512"), "see block_tokens"),
        (GOOD.replace("[1, 2]", '["a"]'), "`$.hash_ids["),
        (GOOD.replace("2]", "9" * 30 + "]"), "`$.hash_ids["),
        (GOOD + "\x00", "a NUL byte at byte"),
        ("PK\x03\x04" + GOOD, "a ZIP archive"),
    ],
)
def test_damaged_trace_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(DatasetRefused) as refused, refusing_trace():
        read(text)

    assert words in refused.value.message
    assert len(refused.value.message) < 5000
    assert (refused.value.path or "").startswith("$.benchmark.trace")


def test_too_many_lines_are_refused_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.traces.lines.MAX_ROWS", 50_000)

    def texts() -> Iterator[str]:
        for _ in range(10_000):
            yield GOOD * 1000

    tracemalloc.start()
    with pytest.raises(DatasetRefused, match="at most 50,000 lines"):
        take_sessions(read_lines(texts(), 512), TraceSpec(path="t"), 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 * 2**20


def test_only_as_many_as_a_level_sends_are_kept() -> None:
    lines = [json.dumps({"timestamp": n, "input_length": 1, "output_length": 1}) for n in range(50)]

    trace = take_sessions(read("\n".join(lines)), TraceSpec(path="t"), 7)

    assert (trace.requests, len(trace.sessions)) == (50, 7)
    assert trace.seconds == 0.006
