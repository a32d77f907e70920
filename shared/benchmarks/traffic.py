"""Traffic scenarios in genai-bench's notation, and the requests that realise them."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

from schemas.errors import ErrorCode
from shared.errors import RefusedError
from shared.words import WORDS

_NUMBERS: Final = r"\((\d+),(\d+)\)"
_DETERMINISTIC: Final = re.compile(rf"D{_NUMBERS}")
_NORMAL: Final = re.compile(rf"N{_NUMBERS}/{_NUMBERS}")
_UNIFORM: Final = re.compile(rf"U{_NUMBERS}/{_NUMBERS}")
_UNIFORM_FROM_ONE: Final = re.compile(r"U\((\d+)\)/\((\d+)\)")

DATASET: Final = "dataset"  # of genai-bench: prompts out of a file
PIECE_TOKENS: Final = 50_000
DEEPEST: Final = 32
OWNED_PARAMETERS: Final = frozenset(
    {"messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n"}
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSize:
    """Tokens wanted of one request; the prompt's are counted before the chat template."""

    num_input_tokens: int
    num_output_tokens: int
    prefix_words: tuple[str, ...] = ()


Scenario = Callable[[random.Random], RequestSize]


def parse_scenario(text: str) -> Scenario:
    """The sampler of a scenario. Raises UnsupportedTraffic for kinds other than D, N and U.

    D(in,out) is fixed; N(mean,stddev)/(mean,stddev) normal, rounded and at least 1;
    U(min,max)/(min,max) uniform with both ends; U(max)/(max) uniform from 1.
    """
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
            f"expected D(in,out), N(mean,stddev)/(mean,stddev) or U(min,max)/(min,max), "
            f"got {text!r}",
            "$.benchmark.traffic_scenarios",
        )
    (low_in, high_in), (low_out, high_out) = bounds
    return lambda rng: _size(rng.randint(low_in, high_in), rng.randint(low_out, high_out))


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


def request_parameters(additional: Mapping[str, Any]) -> dict[str, Any]:
    """The free-form parameters as they go into a request body, `ignore_eos` true unless given.

    Sampling parameters written as text become numbers, since servers refuse them as text.
    Raises UnsupportedTraffic for a parameter that the measurement itself depends on, and for one
    nested so deep that not every reader of it could follow.
    """
    owned = sorted(OWNED_PARAMETERS & additional.keys())
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
    return {"ignore_eos": True, **values}


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
    own_tokens = size.num_input_tokens - len(size.prefix_words)
    return " ".join([*size.prefix_words, make_prompt(own_tokens, rng)])


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
    messages: Sequence[Mapping[str, str]],
    num_output_tokens: int,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    return {**chat_options(model_name, num_output_tokens, parameters), "messages": messages}
