"""The word that somebody may have meant."""

import pytest

from shared.near_words import did_you_mean, nearest, unknown_node

KNOWN = ["vllm", "sglang", "llamacpp", "tensor-parallel-size", "gpu_models"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("vlllm", "vllm"),
        ("SGLang", "sglang"),
        ("tensor-paralel-size", "tensor-parallel-size"),
        ("tensor_parallel_sizes", "tensor-parallel-size"),
        ("gpu-model", "gpu_models"),
    ],
)
def test_a_misspelt_word_names_the_one_like_it(word: str, meant: str) -> None:
    assert did_you_mean(word, KNOWN) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize("word", ["", "trt", "vllm", "something else"])
def test_a_word_like_none_names_none(word: str) -> None:
    assert did_you_mean(word, KNOWN) == ""


@pytest.mark.parametrize(
    ("word", "meant"),
    [("grid", "grid_search"), ("throughput", "maximize_throughput"), ("tokens", None)],
)
def test_a_part_of_one_word_alone_means_it(word: str, meant: str | None) -> None:
    known = ["grid_search", "maximize_throughput", "tokens_of_an_answer", "most_tokens_of_all"]

    assert nearest(word, known) == meant


def test_unknown_node_lists_the_known_ones() -> None:
    text = unknown_node("gpu-3", [f"gpu-{number:02}" for number in range(20)])

    assert "no node gpu-3; did you mean 'gpu-" in text
    assert "gpu-07, ...)" in text
    assert "`gpusteward agent`" in text
