"""Prompts out of a dataset, dealt to requests in place of made ones."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from shared.benchmarks.traffic import (
    DATASET,
    PromptText,
    RequestSize,
    Scenario,
    UnsupportedTraffic,
    parse_scenario,
)

PROMPTS_NAME: Final = "prompts.jsonl"


def write_prompts(path: Path, prompts: Iterable[PromptText]) -> None:
    """Write the prompts of a benchmark, for whatever makes its load."""
    with path.open("wb") as file:
        for prompt in prompts:
            file.write(msgspec.json.encode(prompt) + b"\n")


def read_prompts(path: Path | None) -> tuple[PromptText, ...]:
    """Read what `write_prompts` wrote; nothing without a file."""
    if path is None:
        return ()
    decoder = msgspec.json.Decoder(PromptText)
    with path.open("rb") as file:
        return tuple(decoder.decode(line) for line in file)


def requests_of(
    scenario: str,
    prompts: Sequence[PromptText],
    seed: int,
    *,
    number: int = 0,
    of: int = 1,
    batch_size: int = 1,
) -> Scenario:
    """Return the scenario's requests, with texts of the dataset where there is one, else with
    `batch_size` items.

    Prompts come in an order of the seed, each once before any comes again. Of several processes
    each, by its `number`, deals every `of`-th.
    """
    if not prompts:
        return parse_scenario(scenario, batch_size)
    order = list(range(len(prompts)))
    random.Random(seed).shuffle(order)  # noqa: S311  # repeatable, not secret
    place = number

    def deal() -> PromptText:
        nonlocal place
        prompt = prompts[order[place % len(order)]]
        place += of
        return prompt

    if scenario == DATASET:
        return lambda _: _as_it_is(deal())
    sizes = parse_scenario(scenario)

    def draw_size(rng: random.Random) -> RequestSize:
        size = sizes(rng)
        texts = [deal()]
        tokens = texts[0].num_input_tokens
        while tokens < size.num_input_tokens:
            texts.append(deal())
            tokens += texts[-1].num_input_tokens
        return replace(size, texts=tuple(texts))

    return draw_size


def _as_it_is(prompt: PromptText) -> RequestSize:
    return RequestSize(
        num_input_tokens=prompt.num_input_tokens,
        num_output_tokens=prompt.num_output_tokens,
        texts=(prompt,),
    )


def check_dataset_scenario(scenario: str, *, has_dataset: bool) -> None:
    """Raises UnsupportedTraffic for the scenario `dataset` without one."""
    if scenario == DATASET and not has_dataset:
        raise UnsupportedTraffic(
            "expected benchmark.dataset, with a path or a URL, for the scenario 'dataset'",
            "$.benchmark.traffic_scenarios",
        )
