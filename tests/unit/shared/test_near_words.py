"""The word that somebody may have meant."""

import pytest

from shared.near_words import did_you_mean

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
