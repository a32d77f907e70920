"""Traffic scenarios in genai-bench's notation, and the requests that realise them."""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.task.modality import Modality
from shared.errors import RefusedError
from shared.words import WORDS

_NUMBERS: Final = r"\((\d+),(\d+)\)"
_DETERMINISTIC: Final = re.compile(rf"D{_NUMBERS}")
_NORMAL: Final = re.compile(rf"N{_NUMBERS}/{_NUMBERS}")
_UNIFORM: Final = re.compile(rf"U{_NUMBERS}/{_NUMBERS}")
_UNIFORM_FROM_ONE: Final = re.compile(r"U\((\d+)\)/\((\d+)\)")
_EMBEDDINGS: Final = re.compile(r"E\((\d+)\)")
_RERANK: Final = re.compile(rf"R{_NUMBERS}")
_IMAGES: Final = re.compile(r"I\((\d+),(\d+)(?:,(\d+))?\)")

# What is sent and asked for beside images, of which a scenario says nothing.
IMAGE_PROMPT_TOKENS: Final = 100
IMAGE_ANSWER_TOKENS: Final = 100
MAX_IMAGE_SIDE: Final = 8192
MAX_IMAGES: Final = 64
DATASET: Final = "dataset"  # of genai-bench: prompts out of a file
PIECE_TOKENS: Final = 50_000
DEEPEST: Final = 32
OWNED_PARAMETERS: Final = frozenset(
    {"messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
)
OWNED_WITHOUT_TOKENS: Final = frozenset({"documents", "input", "model", "query", "stream"})
NUMERIC_PARAMETERS: Final = frozenset(
    {
        "frequency_penalty",
        "min_p",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "temperature",
        "top_k",
        "top_p",
    }
)


class UnsupportedTraffic(RefusedError):
    """The built-in load generator cannot make this traffic. `path` names the field of the task."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, message, path=path)


class PromptText(Struct, frozen=True):
    """A prompt of a dataset, with its tokens and those asked for in answer."""

    text: str
    num_input_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """Tokens wanted of one request; the prompt's are counted before the chat template. Its words
    are those of the `texts` where there are some. That of a trace has `num_words`, the first of
    which are `blocks`, each with its seed and its words.

    It has `num_items` inputs or documents, of `item_tokens` each, for a query of `query_tokens`, or
    images of `image_size`, width and height.
    """

    num_input_tokens: int
    num_output_tokens: int
    prefix_words: tuple[str, ...] = ()
    texts: tuple[PromptText, ...] = ()
    num_words: int = 0
    blocks: tuple[tuple[str, int], ...] = ()
    modality: Modality = Modality.TEXT
    num_items: int = 1
    item_tokens: int = 0
    query_tokens: int = 0
    image_size: tuple[int, int] = (0, 0)


PREFLIGHT_SIZE: Final = RequestSize(num_input_tokens=8, num_output_tokens=8)
Scenario = Callable[[random.Random], RequestSize]


def parse_scenario(text: str, batch_size: int = 1) -> Scenario:
    """The sampler of a scenario. Raises UnsupportedTraffic for kinds that are no sizes.

    D(in,out) is fixed; N(mean,stddev)/(mean,stddev) normal, rounded and at least 1;
    U(min,max)/(min,max) uniform with both ends; U(max)/(max) uniform from 1. E(in) is `batch_size`
    inputs, R(document,query) as many documents for a query, I(width,height,images) images with a
    short text.
    """
    fixed = _read_items(text, batch_size)
    if fixed is not None:
        return lambda _: fixed
    if match := _DETERMINISTIC.fullmatch(text):
        size = _size(int(match[1]), int(match[2]))
        return lambda _: size
    if match := _NORMAL.fullmatch(text):
        means, spreads = (int(match[1]), int(match[3])), (int(match[2]), int(match[4]))
        return lambda rng: _size(
            round(rng.gauss(means[0], spreads[0])), round(rng.gauss(means[1], spreads[1]))
        )
    bounds = _uniform_bounds(text)
    if bounds is None:
        raise UnsupportedTraffic(
            "expected D(in,out), N(mean,stddev)/(mean,stddev), U(min,max)/(min,max), E(in), "
            f"R(document,query) or I(width,height,images), got {text!r}",
            "$.benchmark.traffic_scenarios",
        )
    (low_in, high_in), (low_out, high_out) = bounds
    return lambda rng: _size(rng.randint(low_in, high_in), rng.randint(low_out, high_out))


def _read_items(text: str, batch_size: int) -> RequestSize | None:
    """Return the size of every request of E, R or I; None of other kinds."""
    if match := _EMBEDDINGS.fullmatch(text):
        tokens = max(1, int(match[1]))
        return RequestSize(
            num_input_tokens=batch_size * tokens,
            num_output_tokens=0,
            modality=Modality.EMBEDDINGS,
            num_items=batch_size,
            item_tokens=tokens,
        )
    if match := _RERANK.fullmatch(text):
        tokens, query_tokens = (max(1, int(number)) for number in match.groups())
        return RequestSize(
            # Engines read the query with each document.
            num_input_tokens=batch_size * (tokens + query_tokens),
            num_output_tokens=0,
            modality=Modality.RERANK,
            num_items=batch_size,
            item_tokens=tokens,
            query_tokens=query_tokens,
        )
    if match := _IMAGES.fullmatch(text):
        width, height, images = int(match[1]), int(match[2]), int(match[3] or 1)
        if not (0 < width <= MAX_IMAGE_SIDE and 0 < height <= MAX_IMAGE_SIDE):
            raise UnsupportedTraffic(
                f"expected images of 1 to {MAX_IMAGE_SIDE} pixels a side, got {text!r}",
                "$.benchmark.traffic_scenarios",
            )
        if not 0 < images <= MAX_IMAGES:
            raise UnsupportedTraffic(
                f"expected 1 to {MAX_IMAGES} images of a request, got {text!r}",
                "$.benchmark.traffic_scenarios",
            )
        return RequestSize(
            num_input_tokens=IMAGE_PROMPT_TOKENS,
            num_output_tokens=IMAGE_ANSWER_TOKENS,
            modality=Modality.IMAGES,
            num_items=images,
            image_size=(width, height),
        )
    return None


def _uniform_bounds(text: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    if match := _UNIFORM_FROM_ONE.fullmatch(text):
        bounds = (1, int(match[1])), (1, int(match[2]))
    elif match := _UNIFORM.fullmatch(text):
        bounds = (int(match[1]), int(match[2])), (int(match[3]), int(match[4]))
    else:
        return None
    for low, high in bounds:
        if low > high or high < 1:
            raise UnsupportedTraffic(
                f"expected a range that rises, got {low} to {high} in {text!r}",
                "$.benchmark.traffic_scenarios",
            )
    return bounds


def _size(num_input_tokens: int, num_output_tokens: int) -> RequestSize:
    return RequestSize(
        num_input_tokens=max(1, num_input_tokens), num_output_tokens=max(1, num_output_tokens)
    )


def with_shared_prefix(sizes: Scenario, share: float, rng: random.Random) -> Scenario:
    """The same sizes, of which `share` of the prompt is common to all."""
    if not share:
        return sizes
    words: list[str] = []

    def draw_size(own_rng: random.Random) -> RequestSize:
        size = sizes(own_rng)
        count = round(share * size.num_input_tokens)
        words.extend(rng.choices(WORDS, k=max(0, count - len(words))))
        return replace(size, prefix_words=tuple(words[:count]))

    return draw_size


def make_prompt(num_tokens: int, rng: random.Random) -> str:
    """A prompt of about `num_tokens` tokens that shares no beginning with others but by chance.

    Common words are one token each in usual vocabularies. Drawn anew for each request, so that a
    server's prefix cache finds nothing to reuse.
    """
    # In pieces: a thread that makes millions of them in one call would stop all others meanwhile.
    lengths = [PIECE_TOKENS] * (num_tokens // PIECE_TOKENS) + [num_tokens % PIECE_TOKENS]
    return " ".join(" ".join(rng.choices(WORDS, k=length)) for length in lengths if length)


def request_parameters(
    additional: Mapping[str, Any], modality: Modality = Modality.TEXT
) -> dict[str, Any]:
    """The free-form parameters as they go into a request body, `ignore_eos` true unless given where
    answers have tokens.

    Sampling parameters written as text become numbers, since servers refuse them as text.
    Raises UnsupportedTraffic for a parameter that the measurement itself depends on, and for one
    nested so deep that not every reader of it could follow.
    """
    owned_names = OWNED_PARAMETERS if modality.has_tokens else OWNED_WITHOUT_TOKENS
    owned = sorted(owned_names & additional.keys())
    if owned:
        raise UnsupportedTraffic(
            f"{owned[0]!r} is set by the load generator, not by a task",
            f"$.benchmark.additional_params.{owned[0]}",
        )
    for name, value in additional.items():
        if _is_deeper(value, DEEPEST):
            raise UnsupportedTraffic(
                f"expected at most {DEEPEST} values within each other",
                f"$.benchmark.additional_params.{name}",
            )
    values = {
        name: _number(name, value) if name in NUMERIC_PARAMETERS else value
        for name, value in additional.items()
    }
    return {"ignore_eos": True, **values} if modality.has_tokens else values


def _is_deeper(value: object, most: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_is_deeper(part, most - 1) for part in inner)


def _number(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        number = json.loads(value)
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not isfinite(number):
        raise UnsupportedTraffic(
            f"expected a number, got {value!r}", f"$.benchmark.additional_params.{name}"
        )
    return number


def draw_prompt(size: RequestSize, rng: random.Random) -> str:
    """A prompt of this size, beginning with what it shares with others."""
    return " ".join(draw_pieces(size, rng))


def draw_pieces(size: RequestSize, rng: random.Random) -> list[str]:
    """Return the parts of a prompt of this size, to be joined by spaces."""
    if size.num_words:
        return list(_draw_blocks(size, rng))
    own_tokens = size.num_input_tokens - len(size.prefix_words)
    own_words = _join(size.texts, own_tokens) if size.texts else make_prompt(own_tokens, rng)
    return [*size.prefix_words, own_words]


def _draw_blocks(size: RequestSize, rng: random.Random) -> Iterator[str]:
    words = size.num_words
    for block_seed, block_words in size.blocks:
        # The same words wherever the block comes.
        yield make_prompt(block_words, random.Random(block_seed))  # noqa: S311  # not secret
        words -= block_words
    if words > 0:
        yield make_prompt(words, rng)


def _join(texts: Sequence[PromptText], num_tokens: int) -> str:
    """Return so many tokens of the texts, the last one cut where they are more."""
    parts: list[str] = []
    for prompt in texts:
        if num_tokens <= 0:
            break
        share = min(1.0, num_tokens / prompt.num_input_tokens)
        parts.append(prompt.text[: max(1, round(share * len(prompt.text)))])
        num_tokens -= prompt.num_input_tokens
    return " ".join(parts)


def chat_options(
    model_name: str, num_output_tokens: int, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """A streaming chat-completions request that asks for usage, but for its messages."""
    return {
        **parameters,
        "model": model_name,
        "max_tokens": num_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def chat_body(
    model_name: str,
    messages: Sequence[Mapping[str, Any]],
    num_output_tokens: int,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    return {**chat_options(model_name, num_output_tokens, parameters), "messages": messages}
