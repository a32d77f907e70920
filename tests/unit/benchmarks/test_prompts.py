import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.task.benchmark import BenchmarkSpec
from schemas.task.dataset import DatasetSpec
from shared.benchmarks.prompts import read_prompts, requests_of, write_prompts
from shared.benchmarks.tools.spec_check import check_generated
from shared.benchmarks.traffic import (
    PromptText,
    RequestSize,
    UnsupportedTraffic,
    draw_prompt,
    with_shared_prefix,
)

TEXTS = tuple(
    PromptText(" ".join([f"word{number}"] * (number + 1)), number + 1, number + 2)
    for number in range(10)
)


def draw(scenario: str, count: int, *, seed: int = 0, **part: int) -> list[RequestSize]:
    requests, rng = requests_of(scenario, TEXTS, seed, **part), random.Random(0)
    return [requests(rng) for _ in range(count)]


def test_prompts_come_once_each_before_any_comes_again() -> None:
    sizes = draw("dataset", 20)
    prompts = [draw_prompt(size, random.Random(0)) for size in sizes]

    assert set(prompts[:10]) == {prompt.text for prompt in TEXTS}
    assert prompts[:10] == prompts[10:]
    assert prompts[:10] != [draw_prompt(s, random.Random(0)) for s in draw("dataset", 10, seed=1)]
    wanted = {(size.num_input_tokens, size.num_output_tokens) for size in sizes}
    assert wanted == {(prompt.num_input_tokens, prompt.num_output_tokens) for prompt in TEXTS}


def test_parts_of_a_load_share_the_prompts_out() -> None:
    parts = [draw("dataset", 5, number=number, of=2) for number in (0, 1)]
    dealt = [size.texts[0].text for part in parts for size in part]

    assert sorted(dealt) == sorted(prompt.text for prompt in TEXTS)


@given(tokens=st.integers(1, 200), seed=st.integers(0, 5))
def test_texts_are_cut_and_joined_to_the_length(tokens: int, seed: int) -> None:
    [size] = draw(f"D({tokens},7)", 1, seed=seed)

    words = draw_prompt(size, random.Random(0)).split()

    assert (size.num_input_tokens, size.num_output_tokens) == (tokens, 7)
    assert abs(len(words) - tokens) <= 1
    assert all(word.startswith("w") for word in words[:-1])


def test_shared_prefix_takes_the_place_of_a_part() -> None:
    rng = random.Random(0)
    sizes = with_shared_prefix(requests_of("D(40,7)", TEXTS, 0), 0.5, rng)
    first, second = (draw_prompt(sizes(rng), rng).split() for _ in range(2))

    assert first[:20] == second[:20]
    assert first[20:] != second[20:]
    assert 38 <= len(first) <= 41


def test_prompts_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    texts = (*TEXTS, PromptText('two\nlines and "quotes"', 4, 1))
    write_prompts(path, texts)

    assert read_prompts(path) == texts
    assert read_prompts(None) == ()


def test_scenario_dataset_needs_a_dataset_and_no_prefix() -> None:
    with pytest.raises(UnsupportedTraffic, match=r"expected benchmark\.dataset"):
        check_generated(BenchmarkSpec(traffic_scenarios=("dataset",)))
    given_dataset = DatasetSpec(path="x")
    check_generated(BenchmarkSpec(traffic_scenarios=("dataset",), dataset=given_dataset))
    with pytest.raises(UnsupportedTraffic, match="no shared prefix"):
        check_generated(
            BenchmarkSpec(traffic_scenarios=("dataset",), dataset=given_dataset, prefix_share=0.5)
        )
