import gzip
import itertools
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from schemas.task.dataset import DatasetColumns, DatasetFormat, DatasetSpec
from shared.datasets.bounds import DatasetRefused
from shared.datasets.pieces import decode, unpack
from shared.datasets.rows import Row, read_rows
from shared.datasets.selection import draw_candidates

SHAREGPT = [
    {
        "id": "1",
        "conversations": [
            {"from": "system", "value": "be short"},
            {"from": "human", "value": "hello there"},
            {"from": "gpt", "value": "hi, how are you"},
        ],
    }
]


def read(
    content: bytes, name: str = "data", *, chunk: int = 7, **options: object
) -> tuple[DatasetFormat, list[Row]]:
    spec = DatasetSpec(path="data", **options)  # type: ignore[arg-type]  # any field
    chunks = (content[place : place + chunk] for place in range(0, len(content), chunk))
    reading = read_rows(decode(unpack(chunks)), spec, name)
    return reading.format, list(reading.rows)


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (as_json(SHAREGPT), "chats.json", (DatasetFormat.SHAREGPT, "hello there")),
        (as_json(SHAREGPT[0]), "chats", (DatasetFormat.SHAREGPT, "hello there")),
        (as_json(["one", "two"]), "x.json", (DatasetFormat.PROMPTS, "one")),
        (as_json("one"), "x.jsonl", (DatasetFormat.PROMPTS, "one")),
        (as_json({"question": "why"}), "x.jsonl", (DatasetFormat.PROMPTS, "why")),
        (b"\xef\xbb\xbf" + as_json({"text": "why"}), "x", (DatasetFormat.PROMPTS, "why")),
        (b'id,prompt\n1,"two,\nlines"\n', "x.csv", (DatasetFormat.CSV, "two,\nlines")),
        ("grüße\n".encode(), "x.txt", (DatasetFormat.TEXT, "grüße")),
        (b"[not json]\nbut text", "x.txt", (DatasetFormat.TEXT, "[not json]")),
        (b"plain words", "x", (DatasetFormat.TEXT, "plain words")),
    ],
)
def test_format_follows_from_name_and_beginning(
    content: bytes, name: str, expected: tuple[DatasetFormat, str]
) -> None:
    for packed, packed_name in ((content, name), (gzip.compress(content), f"{name}.gz")):
        read_as, rows = read(packed, packed_name)

        assert (read_as, rows[0].prompt) == expected


def test_answer_is_the_one_after_the_prompt() -> None:
    _, [row] = read(as_json(SHAREGPT))

    assert row.answer == "hi, how are you"


def test_messages_become_one_prompt_and_the_last_answer() -> None:
    messages = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "what is it"}]},
        {"role": "assistant", "content": "a cat"},
    ]
    wrapped = {"body": {"messages": messages, "max_tokens": 9}}
    cell = as_json(messages).decode().replace('"', '""')
    for content, name in (
        (as_json({"messages": messages, "max_tokens": 9}), "x.jsonl"),
        (as_json(wrapped), "batch.jsonl"),
        (f'max_tokens,messages\n9,"{cell}"\n'.encode(), "x.csv"),
    ):
        _, rows = read(content, name)

        assert rows == [Row("be short\n\nwhat is it", "a cat", 9)]


def test_columns_are_mapped_by_name() -> None:
    columns = DatasetColumns(prompt="q", answer="a", output_tokens="n")
    expected = [Row("why", "so", 3)]

    assert read(b"n,q,a,prompt\n3,why,so,no\n", "x.csv", columns=columns)[1] == expected
    row = {"n": 3, "q": "why", "a": "so", "prompt": "no"}
    assert read(as_json(row), "x.jsonl", columns=columns)[1] == expected


def test_half_a_character_pair_becomes_a_question_mark() -> None:
    _, rows = read(b'{"prompt": "a \\ud800 b"}')

    assert rows == [Row("a ? b")]


ARRAY_OF_ONE = b"[" * 100_000
HOSTILE = {
    "empty": (b"", "x", "empty file"),
    "only space": (b" \n\n ", "x", "empty file"),
    "NUL": (b"good\nbad\x00\n", "x.txt", "NUL byte at byte 8"),
    "UTF-16": ("prompt\nhi".encode("utf-16"), "x.csv", "UTF-16"),
    "UTF-16 without its mark": ("prompt".encode("utf-16-le"), "x.csv", "NUL"),
    "Latin-1": ("grüße".encode("latin-1"), "x.txt", "UTF-8"),
    "cut in a character": ("grü".encode()[:-1], "x.txt", "UTF-8"),
    "ZIP": (b"PK\x03\x04...", "x.zip", "ZIP"),
    "Parquet": (b"PAR1...", "x.parquet", "Parquet"),
    "damaged gzip": (b"\x1f\x8b\x08garbage here", "x.gz", "gzip"),
    "cut gzip": (gzip.compress(b"words " * 1000)[:-20], "x.txt.gz", "cut off"),
    "JSON line": (b'{"prompt": "a"}\n{"prompt":\n', "x.jsonl", "line 2"),
    "JSON array that is cut": (b'[{"prompt": "a"}, {"pro', "x.json", "value 2"),
    "JSON array that goes on": (b'["a"] ["b"]', "x.json", "nothing after"),
    "deep JSON": (ARRAY_OF_ONE, "x.json", "deep"),
    "deep JSON line": (b'{"a":' + ARRAY_OF_ONE + b"\n", "x.jsonl", "deep"),
    "CSV without the column": (b"id,cost\n1,2\n", "x.csv", "name the prompt's column"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_refused_in_words(case: str) -> None:
    content, name, words = HOSTILE[case]

    with pytest.raises(DatasetRefused) as refusal:
        read(content, name, chunk=5_000)

    assert words in refusal.value.message
    assert (refusal.value.path or "").startswith("$.benchmark.dataset")


def endless(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece)


@pytest.mark.parametrize(
    ("chunks", "name", "words"),
    [
        (itertools.chain([b"prompt\n"], endless(b"a" * 2**20)), "x.csv", "line 2"),
        (itertools.chain([b'prompt\n"'], endless((b"a" * 1023 + b"\n") * 2**10)), "x.csv", "field"),
        (endless(b"a" * 2**20), "x.txt", "line 1"),
        (itertools.chain([b'["'], endless(b"a" * 2**20)), "x.json", "value 1"),
        (itertools.chain([b"["], endless(b"1" * 2**20)), "x.json", "value 1"),
        (endless(b"\n" * 2**20), "x.txt", "blanks"),
        (endless(b"a b\n" * 2**18), "x.txt", "9,000 rows"),
        (endless(b'{"prompt": "a b"}\n' * 2**16), "x.jsonl", "9,000 rows"),
    ],
    ids=["line", "quote", "text", "string", "number", "blank lines", "rows", "JSON rows"],
)
def test_endless_file_is_refused_in_little_memory(
    chunks: Iterator[bytes], name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.datasets.rows.MAX_ROWS", 9_000)
    spec = DatasetSpec(path="x", sample=10)
    tracemalloc.start()
    try:
        with pytest.raises(DatasetRefused) as refusal:
            draw_candidates(read_rows(decode(unpack(chunks)), spec, name).rows, spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert words in refusal.value.message
    assert peak < 64 * 2**20


def test_zip_bomb_is_refused_in_little_memory() -> None:
    bomb = gzip.compress(bytes(64) + b"a" * (256 * 2**20), compresslevel=9)
    tracemalloc.start()
    try:
        with pytest.raises(DatasetRefused, match="at most 16 MiB of text"):
            for _ in unpack([bomb], 16 * 2**20):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * 2**20
