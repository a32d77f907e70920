"""The size of a model from its config.json, against published counts."""

import json
from typing import Any

import pytest

from shared.gpu.gpu_speeds import speed_of
from shared.gpu.model_shapes import shape_of_model

LLAMA_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
LLAMA_1B = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
LLAMA_2_7B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
MIXTRAL = LLAMA_8B | {"vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_30B_A3B = {
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("config", "billions", "active_billions"),
    [
        pytest.param(LLAMA_8B, 8.03, 7.50, id="Llama 3.1 8B"),
        pytest.param(QWEN_30B_A3B, 30.5, 3.03, id="Qwen3 30B, 3.3 with both embeddings"),
        pytest.param({"text_config": LLAMA_8B}, 8.03, 7.50, id="of several kinds of input"),
        pytest.param(LLAMA_1B, 1.24, 1.24, id="Llama 3.2 1B, one table of embeddings"),
        pytest.param(LLAMA_2_7B, 6.74, 6.61, id="Llama 2 7B, as many keys as heads"),
        pytest.param(MIXTRAL, 46.7, 12.75, id="Mixtral 8x7B"),
        pytest.param(
            {**MIXTRAL, "num_local_experts": None, "n_routed_experts": 8},
            *(46.7, 12.75),
            id="experts by another name",
        ),
        pytest.param(
            {**MIXTRAL, "num_experts_per_tok": None}, 46.7, 46.57, id="all experts for each token"
        ),
        pytest.param(
            {**MIXTRAL, "num_experts_per_tok": 1}, 46.7, 7.11, id="one expert for each token"
        ),
    ],
)
def test_weights_are_those_that_are_published(
    config: dict[str, Any], billions: float, active_billions: float
) -> None:
    shape = shape_of_model(json.dumps(config).encode())

    assert shape is not None
    assert shape.weights / 1e9 == pytest.approx(billions, rel=0.005)
    assert shape.active_weights / 1e9 == pytest.approx(active_billions, rel=0.005)


def test_a_token_of_llama_caches_128_kib_in_16_bits() -> None:
    shape = shape_of_model(json.dumps(LLAMA_8B).encode())

    assert shape is not None
    assert 2 * shape.cached_values == 128 * 1024


@pytest.mark.parametrize(
    "config",
    [b"", b"[]", b"{}", b"{" * 10_000, b'{"hidden_size": "4096"}', b"\xff"]
    + [json.dumps({**LLAMA_8B, name: bad}).encode() for name in LLAMA_8B for bad in (-1, 10**14)]
    + [json.dumps({**LLAMA_8B, "num_experts": -3}).encode()],
)
def test_what_tells_no_size_has_none(config: bytes) -> None:
    shape = shape_of_model(config)

    assert shape is None or min(shape.weights, shape.active_weights, shape.cached_values) > 0


@pytest.mark.parametrize(
    "bad",
    [
        *({name: 0} for name in LLAMA_8B if name != "num_key_value_heads"),
        {"num_key_value_heads": -8},
        {"num_experts": 8, "num_experts_per_tok": -1},
    ],
    ids=str,
)
def test_what_cannot_be_is_no_size(bad: dict[str, int]) -> None:
    assert shape_of_model(json.dumps(LLAMA_8B | bad).encode()) is None


@pytest.mark.parametrize("name", sorted(LLAMA_8B.keys() - {"num_key_value_heads"}))
def test_what_leaves_a_size_out_tells_none(name: str) -> None:
    told = {each: size for each, size in LLAMA_8B.items() if each != name}

    assert shape_of_model(json.dumps(told).encode()) is None


def test_a_model_may_have_one_layer() -> None:
    assert shape_of_model(json.dumps(LLAMA_8B | {"num_hidden_layers": 1}).encode()) is not None


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10"),
        ("Tesla T4", "T4"),
    ],
)
def test_gpu_speed_is_of_its_longest_name(name: str, model: str) -> None:
    speed = speed_of(name)

    assert speed is not None
    assert speed.model == model
    assert speed_of("Quadro P400") is None
