from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.benchmarks.builtin.chat_stream import (
    MAX_EVENT_LINES,
    MAX_LINE_BYTES,
    ChatStream,
    EventParser,
    MalformedStream,
    Usage,
)


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def content(text: str | None, finish_reason: str | None = None) -> bytes:
    return event(choices=[{"delta": {"content": text}, "finish_reason": finish_reason}])


USAGE = event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3})
END = b"data: [DONE]\n\n"


def read(*chunks: bytes) -> tuple[ChatStream, str | None]:
    """Feed chunk by chunk, the clock showing the chunk's number."""
    stream = ChatStream()
    for number, chunk in enumerate(chunks):
        stream.feed(chunk, float(number))
    return stream, stream.close(float(len(chunks)))


@pytest.mark.parametrize(
    ("stream", "want"),
    [
        pytest.param(b"data: a\n\n", [b"a"], id="line feeds"),
        pytest.param(b"data: a\r\n\r\n", [b"a"], id="carriage returns and line feeds"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="carriage returns alone"),
        pytest.param(b"data:a\n\n", [b"a"], id="no space"),
        pytest.param(b"data:  a\n\n", [b" a"], id="one space is dropped"),
        pytest.param(b": ping\n\ndata: a\n\n", [b"a"], id="a comment"),
        pytest.param(b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"], id="other fields"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="data in two lines"),
        pytest.param(b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"], id="in two lines of both"),
        pytest.param(b"data: a\n\n\n\n", [b"a"], id="empty lines"),
        pytest.param(b"data: a\n\ndata: b", [b"a"], id="an event cut off"),
        pytest.param(b"data: a\n\ndata: b\n", [b"a"], id="an event whose empty line is missing"),
        pytest.param(
            "data: né\u2028€😀\n\n".encode(), ["né\u2028€😀".encode()], id="long characters"
        ),
    ],
)
def test_events_do_not_depend_on_stream_cuts(stream: bytes, want: list[bytes]) -> None:
    for size in range(1, len(stream) + 1):
        parser = EventParser()
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]

        assert [data for chunk in chunks for data in parser.feed(chunk)] == want


@given(
    texts=st.lists(st.text(min_size=1).filter(lambda text: not set("\r\n") & set(text))),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    data=st.data(),
)
def test_any_texts_survive_any_cuts(texts: list[str], line_end: bytes, data: st.DataObject) -> None:
    whole = b"".join(b"data: " + text.encode() + line_end * 2 for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    parser = EventParser()

    bounds = zip([0, *cuts], [*cuts, len(whole)], strict=True)
    events = [event for start, end in bounds for event in parser.feed(whole[start:end])]

    assert events == [text.encode() for text in texts]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((b"data: " + b"x" * 2**20 + b"\n") * 5, id="large"),
        pytest.param(b"data:\n" * (MAX_EVENT_LINES + 1), id="many"),
    ],
)
def test_an_event_without_end_is_refused(lines: bytes) -> None:
    with pytest.raises(MalformedStream, match="an event of more than"):
        EventParser().feed(lines)


def test_a_line_without_end_is_refused() -> None:
    parser = EventParser()
    parser.feed(b"x" * MAX_LINE_BYTES)

    with pytest.raises(MalformedStream):
        parser.feed(b"x")


def test_the_first_content_and_the_end_are_timed() -> None:
    stream, failure = read(
        content(None), content("a"), content("b"), content(None, "length") + USAGE, END
    )

    assert failure is None
    assert (stream.first_content_at, stream.finished_at) == (1.0, 4.0)
    assert stream.content_chunks == 2
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (7, 3)


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param({"prompt_tokens": 11, "total_tokens": 11}, id="LiteLLM, first chunk"),
        pytest.param({"prompt_tokens_details": {"cached_tokens": 0}}, id="SGLang, first chunk"),
        pytest.param({"prompt_tokens": 11, "completion_tokens": None}, id="null"),
        pytest.param({"prompt_tokens": 11.0, "completion_tokens": 0.0}, id="floats"),
    ],
)
def test_partial_usage_costs_nothing(usage: dict[str, Any]) -> None:
    partial = event(choices=[{"delta": {"content": "a"}}], usage=usage)

    stream, failure = read(partial, content(None, "length") + USAGE, END)
    alone, _ = read(partial, content(None, "length"), END)

    assert failure is None
    assert stream.usage == Usage(prompt_tokens=7, completion_tokens=3)
    is_whole = usage.get("completion_tokens") is not None
    assert (alone.usage is not None) is is_whole


def test_reasoning_counts_as_content() -> None:
    stream, failure = read(event(choices=[{"delta": {"reasoning_content": "hm"}}]), END)

    assert failure is None
    assert stream.first_content_at == 0.0


def test_what_follows_the_end_marker_does_not_count() -> None:
    stream, _ = read(content("a") + END + content("b"), content("c"))

    assert stream.content_chunks == 1
    assert stream.finished_at == 0.0


@pytest.mark.parametrize(
    ("chunks", "want"),
    [
        pytest.param([content("a"), content("b", "stop")], None, id="finished, no end marker"),
        pytest.param([content("a")], "truncated", id="neither finished nor marked"),
        pytest.param([], "truncated", id="nothing at all"),
        pytest.param([content(""), END], "empty", id="no content"),
        pytest.param([content("a"), event(error={"code": 500}), END], "server_error", id="error"),
        pytest.param([event(object="error", message="no", code=400)], "server_error", id="object"),
    ],
)
def test_an_answer_is_complete_or_says_why_not(chunks: list[bytes], want: str | None) -> None:
    assert read(*chunks)[1] == want


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"choices": 3}', b'{"usage": {"prompt_tokens": "7"}}', b"hello", b"\xff"],
)
def test_data_that_is_no_chunk_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedStream):
        ChatStream().feed(b"data: " + data + b"\n\n", 0.0)


@pytest.mark.parametrize(
    ("pieces", "tokens", "first"),
    [
        pytest.param(["a"] * 8, 8, 1, id="a token a piece"),
        pytest.param(["internationally", "a", "b", "c"], 4, 1, id="long words of a token each"),
        pytest.param(["a"] * 8, 9, 1, id="an end that no piece shows"),
        pytest.param([" a a a a"] * 4, 16, 4, id="four tokens a piece"),
        pytest.param([" a", *[" a a a"] * 5], 16, 1, id="one, then three a piece"),
        pytest.param([" a a a a"], 4, 3, id="all in one piece"),
    ],
)
def test_first_piece_has_its_share_of_tokens(pieces: list[str], tokens: int, first: int) -> None:
    stream, failure = read(*map(content, pieces), END)

    assert failure is None
    assert stream.count_first_tokens(tokens) == first


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_pieces_of_thoughts_count_as_well(field: str) -> None:
    thought = event(choices=[{"delta": {field: " a a"}}])

    stream, _ = read(thought, thought, thought, thought, END)

    assert stream.first_content_at == 0.0
    assert stream.count_first_tokens(8) == 2
