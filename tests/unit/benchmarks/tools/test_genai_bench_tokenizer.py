"""The tokenizer that prompts are sized with: found, or made of a model's file."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from shared.benchmarks.genai_bench.gguf import NotGguf, read_metadata
from shared.benchmarks.genai_bench.tokenizer import TokenizerMissing, is_local, tokenizer_for

TOKENS = ["<end>", "<start>", "a", "b", "ab"]
BYTE_PAIRS: dict[str, object] = {
    "general.name": "tiny",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages }}",
    "llama.rope.freq_base": 0.5,
}


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(given: object) -> bytes:
    """A value with its type, as the format numbers types."""
    match given:
        case bool():
            return struct.pack("<I?", 7, given)
        case int():
            return struct.pack("<II", 4, given)
        case float():
            return struct.pack("<If", 6, given)
        case str():
            return struct.pack("<I", 8) + string(given)
        case [str(), *_]:
            items = b"".join(string(str(each)) for each in given)
            return struct.pack("<IIQ", 9, 8, len(given)) + items
        case Sequence():
            return struct.pack(f"<IIQ{len(given)}i", 9, 5, len(given), *given)
    raise TypeError(given)


def make_gguf(path: Path, metadata: dict[str, object], *, magic: bytes = b"GGUF") -> Path:
    pairs = b"".join(string(key) + value(given) for key, given in metadata.items())
    path.write_bytes(magic + struct.pack("<IQQ", 3, 0, len(metadata)) + pairs + b"weights")
    return path


def test_a_gguf_files_header_is_read(tmp_path: Path) -> None:
    assert read_metadata(make_gguf(tmp_path / "m.gguf", BYTE_PAIRS)) == BYTE_PAIRS


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\3\4" + bytes(64)])
def test_another_file_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)

    with pytest.raises(NotGguf):
        read_metadata(path)


def test_a_header_that_ends_early_is_told(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", BYTE_PAIRS)
    whole = path.read_bytes()
    for size in range(24, len(whole) - 60, 7):
        path.write_bytes(whole[:size])
        with pytest.raises(NotGguf):
            read_metadata(path)


def test_the_tokenizer_of_a_gguf_file_is_made(tmp_path: Path) -> None:
    weights = make_gguf(tmp_path / "m.gguf", BYTE_PAIRS)

    made = Path(
        tokenizer_for(None, (str(weights),), simulated=False, directory=tmp_path / "tokenizer")
    )

    tokenizer = json.loads((made / "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"] == {token: place for place, token in enumerate(TOKENS)}
    assert tokenizer["model"]["merges"] == ["a b"]
    assert [each["content"] for each in tokenizer["added_tokens"]] == ["<end>", "<start>"]
    cuts = [each["type"] for each in tokenizer["pre_tokenizer"]["pretokenizers"]]
    assert cuts == ["Digits", "ByteLevel"]
    settings = json.loads((made / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["chat_template"]) == ("<end>", "{{ messages }}")
    assert is_local(str(made))


def test_a_kind_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    weights = make_gguf(tmp_path / "m.gguf", BYTE_PAIRS | {"tokenizer.ggml.model": "llama"})

    with pytest.raises(TokenizerMissing, match="name the model's folder"):
        tokenizer_for(None, (str(weights),), simulated=False, directory=tmp_path / "tokenizer")


def test_named_tokenizer_precedes_the_models(tmp_path: Path) -> None:
    for name in ("model", "named"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
    own, named = str(tmp_path / "model"), str(tmp_path / "named")

    assert tokenizer_for(named, (own,), simulated=False, directory=tmp_path) == named
    assert tokenizer_for(None, ("/nowhere", own), simulated=False, directory=tmp_path) == own


def test_a_hubs_name_is_left_to_the_hub(tmp_path: Path) -> None:
    found = tokenizer_for(None, ("m", "org/model-7B"), simulated=False, directory=tmp_path)

    assert found == "org/model-7B"
    assert not is_local(found)


def test_a_simulated_engine_counts_words(tmp_path: Path) -> None:
    made = Path(tokenizer_for(None, (), simulated=True, directory=tmp_path / "tokenizer"))

    tokenizer = json.loads((made / "tokenizer.json").read_text())
    assert (tokenizer["model"]["type"], tokenizer["model"]["unk_token"]) == ("WordLevel", "[UNK]")


@pytest.mark.parametrize(("wanted", "places"), [(None, ("m", "/nowhere")), ("/nowhere", ())])
def test_without_a_tokenizer_the_next_step_is_told(
    tmp_path: Path, wanted: str | None, places: tuple[str, ...]
) -> None:
    with pytest.raises(TokenizerMissing, match=r"model_tokenizer|expected a tokenizer's folder"):
        tokenizer_for(wanted, places, simulated=False, directory=tmp_path)
