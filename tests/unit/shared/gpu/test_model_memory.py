"""How much memory a model needs: a rule of thumb."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.gpu.model_memory import (
    OVERHEAD_MB,
    ModelMemory,
    bytes_named,
    parameters_named,
    values_cached,
)


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8),
        ("llama-2-7b", 7),
        ("Llama-3.1-405B", 405),
        ("Qwen/Qwen2.5-1.5B", 1.5),
        ("Qwen/Qwen2.5-0.5b-Instruct", 0.5),
        ("stablelm-2-1_6b", 1.6),
        ("smollm2-135m", 0.135),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56),
        ("Qwen/Qwen3-30B-A3B", 30),
        ("llama-3-2-1b-instruct", 1),
        ("internlm2_5-7b-chat", 7),
        ("/models/llama-70b/", 70),
        ("/models/llama-70b/Qwen-0.5B", 0.5),
        ("Qwen1.5-MoE-A2.7B", None),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", None),
        ("google/gemma-3n-E4B-it", None),
        ("bge-m3", None),
        ("phi-3-mini-4k-instruct", None),
        ("DeepSeek-R1-0528", None),
        ("simulated-model", None),
        ("0b", None),
        ("1" * 5000 + "b", None),
    ],
)
def test_parameters_are_those_that_a_name_tells(model: str, billions: float | None) -> None:
    want = None if billions is None else pytest.approx(billions * 1e9)

    assert parameters_named(model) == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Llama-2-13B-chat-AWQ", 0.5),
        ("Qwen2.5-32B-Instruct-GPTQ-Int4", 0.5),
        ("Qwen2.5-32B-Instruct-GPTQ-Int8", 1.0),
        ("Meta-Llama-3-8B-FP8", 1.0),
        ("Llama-3.1-8B-Instruct-NVFP4", 0.5),
        ("Llama-3-8B.Q4_K_M.gguf", 0.625),
        ("Llama-3-8B.Q8_0.gguf", 1.125),
        ("awq_marlin", 0.5),
        ("fp8_e5m2", 1.0),
        ("float32", 4.0),
        ("bfloat16", None),
        ("auto", None),
        ("llama-8b", None),
    ],
)
def test_weight_bytes_follow_the_name(name: str, want: float | None) -> None:
    assert bytes_named(name) == want


def test_the_sum_is_told_with_its_terms() -> None:
    rule = ModelMemory(
        parameters=8e9, bytes_each=2, tokens=8192, values_of_token=values_cached(8e9)
    )

    assert (rule.weights_mb, rule.cache_mb, rule.memory_mb) == (15_259, 1024, 18_331)
    assert rule.in_words("tp 1") == (
        "8 B parameters x 2 bytes / tp 1 = 15,259 MiB + KV cache of a sequence of 8,192 tokens"
        " 1,024 MiB + 2,048 MiB for CUDA and activations = 18,331 MiB"
    )


rules = st.builds(
    ModelMemory,
    parameters=st.floats(1e6, 2e12),
    bytes_each=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    tokens=st.integers(1, 1_000_000),
    values_of_token=st.floats(1_000, 1_000_000),
    bytes_cached=st.sampled_from([1.0, 2.0]),
    divisor=st.integers(1, 64),
)


@given(rules, rules)
def test_more_memory_terms_never_need_less(one: ModelMemory, other: ModelMemory) -> None:
    more = ModelMemory(
        parameters=max(one.parameters, other.parameters),
        bytes_each=max(one.bytes_each, other.bytes_each),
        tokens=max(one.tokens, other.tokens),
        values_of_token=max(one.values_of_token, other.values_of_token),
        bytes_cached=max(one.bytes_cached, other.bytes_cached),
        divisor=min(one.divisor, other.divisor),
    )

    assert OVERHEAD_MB < one.memory_mb <= more.memory_mb


@given(st.floats(1e6, 2e12), st.floats(1e6, 2e12))
def test_a_larger_model_caches_no_fewer_values(one: float, other: float) -> None:
    assert values_cached(min(one, other)) <= values_cached(max(one, other))
