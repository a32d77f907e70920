"""The tokenizer that genai-bench sizes its prompts with.

It reads folders in the layout of Hugging Face, and names of a hub. The servers count the tokens
that are measured; this one only decides how much text a prompt has.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from shared.benchmarks.genai_bench.gguf import NotGguf, read_metadata
from shared.benchmarks.tools.adapter import BenchmarkFailed
from shared.paths import write_atomically

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
SPECIAL: Final = frozenset({3, 4})  # control and user-defined tokens, by ggml's numbers
SINGLE_DIGITS: Final = frozenset({"smollm", "starcoder", "refact", "command-r"})
UNKNOWN_WORD: Final = "[UNK]"


class TokenizerMissing(BenchmarkFailed):
    """Nothing that genai-bench could count tokens with was found."""


def tokenizer_for(
    name: str | None, model_paths: tuple[str, ...], *, simulated: bool, directory: Path
) -> str:
    """Return what genai-bench takes as tokenizer: a folder, or a model's name on the hub.

    `name` goes first, then the places where the served model may be: a folder, a GGUF file or a
    name on the hub. For a GGUF file, and for a simulated engine, whose tokens are words, a
    tokenizer is made in `directory`. Raises TokenizerMissing.
    """
    if name is not None:
        tokenizer = _usable(name, directory)
        if tokenizer is None:
            raise TokenizerMissing(
                f"expected a tokenizer's folder, a GGUF file or a hub's name, got {name!r}"
            )
        return tokenizer
    if simulated:
        return str(write_word_tokenizer(directory))
    for path in model_paths:
        if (tokenizer := _usable(path, directory)) is not None:
            return tokenizer
    raise TokenizerMissing(
        "genai-bench needs the model's tokenizer, and the model's files are not on this host: "
        "name its folder or its name on a hub as model_tokenizer, or take the tool 'builtin'"
    )


def is_local(tokenizer: str) -> bool:
    """True if genai-bench can read the tokenizer without the hub."""
    return Path(tokenizer).exists()


def _usable(place: str, directory: Path) -> str | None:
    path = Path(place).expanduser()
    if path.is_dir():
        return str(path) if any((path / name).is_file() for name in TOKENIZER_FILES) else None
    if path.is_file():
        return str(from_gguf(path, directory)) if path.suffix == ".gguf" else None
    # A hub's name never begins like a path, and a path that is not here is of another host.
    return place if HUB_NAME.fullmatch(place) else None


def from_gguf(path: Path, directory: Path) -> Path:
    """Make the tokenizer that a GGUF file describes. Raises TokenizerMissing."""
    try:
        metadata = read_metadata(path)
        tokenizer = byte_pair_tokenizer(metadata)
    except (NotGguf, KeyError, OSError) as error:
        raise TokenizerMissing(f"no tokenizer can be made of {path}: {error}") from error
    return _write(directory, tokenizer, _settings(metadata))


def byte_pair_tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """`tokenizer.json` of a model whose tokens are byte pairs. Raises TokenizerMissing for others.

    How text is cut before pairs are merged is known by the name that the file gives; where that is
    unknown here, as GPT-2 does it, which is close enough to size a prompt.
    """
    kind = metadata["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise TokenizerMissing(
            f"its tokenizer is of the kind {kind!r}, which cannot be made out of a GGUF file: "
            "name the model's folder or its name on a hub as model_tokenizer"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata.get("tokenizer.ggml.token_type", [])
    pre_tokenizers: list[dict[str, Any]] = [_BYTE_LEVEL | {"add_prefix_space": False}]
    if metadata.get("tokenizer.ggml.pre") in SINGLE_DIGITS:
        pre_tokenizers.insert(0, {"type": "Digits", "individual_digits": True})
    return _tokenizer(
        model={
            "type": "BPE",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
        pre_tokenizer={"type": "Sequence", "pretokenizers": pre_tokenizers},
        decoder=_BYTE_LEVEL | {"add_prefix_space": True},
        special={number: tokens[number] for number, kind in enumerate(kinds) if kind in SPECIAL},
    )


def write_word_tokenizer(directory: Path) -> Path:
    """Make the folder of a tokenizer with a token for each word."""
    return _write(directory, word_tokenizer(), {})


def word_tokenizer() -> dict[str, Any]:
    """`tokenizer.json` with a token for each word, whichever it is."""
    return _tokenizer(
        model={"type": "WordLevel", "vocab": {UNKNOWN_WORD: 0}, "unk_token": UNKNOWN_WORD},
        pre_tokenizer={"type": "WhitespaceSplit"},
        decoder=None,
        special={},
    )


_BYTE_LEVEL: Final = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}


def _tokenizer(
    *,
    model: dict[str, Any],
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any] | None,
    special: dict[int, str],
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, text in special.items()
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    settings: dict[str, Any] = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos")):
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            settings[name] = tokens[number]
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    return settings


def _write(directory: Path, tokenizer: dict[str, Any], settings: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "tokenizer.json", msgspec.json.encode(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | settings
    write_atomically(directory / "tokenizer_config.json", msgspec.json.encode(config))
    return directory
