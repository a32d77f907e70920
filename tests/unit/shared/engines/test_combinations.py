"""Flags of an engine that do not go together are said in words."""

from typing import Any

import pytest

from schemas.executor.engine_rules import EngineRules
from shared.engines.check import find_conflicts


def conflicts_of(engine: str, parameters: dict[str, Any], *allowed: str) -> dict[str, str]:
    found = find_conflicts(engine, EngineRules(allowed=allowed), parameters)
    return {conflict.flag: conflict.reason for conflict in found}


@pytest.mark.parametrize(
    ("engine", "parameters", "flag", "reason"),
    [
        ("vllm", {"speculative-config": '{"method": "eagle3"}'}, "speculative-config", "`model`"),
        (
            "vllm",
            {"speculative_config": {"method": "ngram"}},
            "speculative-config",
            "`num_speculative_tokens`",
        ),
        (
            "vllm",
            {
                "tensor-parallel-size": 4,
                "speculative-config": {
                    "method": "eagle",
                    "model": "org/draft",
                    "draft_tensor_parallel_size": 2,
                },
            },
            "speculative-config",
            "1 or 4",
        ),
        (
            "vllm",
            {"enable-lora": True, "max-loras": 4, "max-cpu-loras": 2},
            "max-cpu-loras",
            "at least max-loras",
        ),
        ("vllm", {"enable-lora": True, "max-lora-rank": 48}, "max-lora-rank", "one of 1, 8, 16"),
        ("vllm", {"max-loras": 4}, "max-loras", "no effect without enable-lora"),
        ("vllm", {"kv-offloading-backend": "native"}, "kv-offloading-backend", "no effect"),
        (
            "sglang",
            {"speculative-algorithm": "EAGLE3"},
            "speculative-algorithm",
            "speculative-draft-model-path",
        ),
        (
            "sglang",
            {"speculative-algorithm": "EAGLE", "speculative-num-draft-tokens": 4},
            "speculative-num-draft-tokens",
            "together, or none",
        ),
        (
            "sglang",
            {
                "speculative-algorithm": "EAGLE",
                "speculative-num-steps": 3,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 8,
            },
            "speculative-num-draft-tokens",
            "expected 4",
        ),
        (
            "sglang",
            {"enable-hierarchical-cache": True, "disable-radix-cache": True},
            "enable-hierarchical-cache",
            "radix cache",
        ),
        ("sglang", {"hicache-size": 40}, "hicache-size", "no effect"),
        (
            "sglang",
            {"enable-lora": True, "speculative-algorithm": "EAGLE", "max-lora-rank": 16},
            "speculative-algorithm",
            "NGRAM",
        ),
        ("sglang", {"enable-lora": True}, "enable-lora", "lora-target-modules"),
        (
            "trtllm",
            {"speculative-config": {"decoding_type": "Eagle3", "max_draft_len": 3}},
            "speculative-config",
            "speculative_model",
        ),
        (
            "trtllm",
            {"speculative-config": {"decoding_type": "NGram"}},
            "speculative-config",
            "max_draft_len",
        ),
        (
            "trtllm",
            {"free_gpu_memory_fraction": 0.9, "kv-cache-config": {"dtype": "fp8"}},
            "free-gpu-memory-fraction",
            "takes its place",
        ),
        (
            "trtllm",
            {"kv-cache-config": {"host_cache_size": 1 << 30, "enable_block_reuse": False}},
            "kv-cache-config",
            "enable_block_reuse",
        ),
        (
            "trtllm",
            {"lora-config": {"max_loras": 4, "max_cpu_loras": 2}},
            "lora-config",
            "at least max_loras",
        ),
    ],
)
def test_conflict_is_said_of_its_flag(
    engine: str, parameters: dict[str, Any], flag: str, reason: str
) -> None:
    found = conflicts_of(engine, parameters)

    assert reason in found[flag]


@pytest.mark.parametrize(
    ("engine", "parameters"),
    [
        ("vllm", {"speculative-config": {"method": "ngram", "num_speculative_tokens": 4}}),
        ("vllm", {"speculative-config": {"method": "mtp"}}),
        ("vllm", {"enable-lora": True, "max-loras": 4, "max-cpu-loras": 8, "max-lora-rank": 16}),
        ("vllm", {"kv-offloading-size": 40, "kv-offloading-backend": "native"}),
        ("vllm", {"max-num-seqs": 64, "speculative-config": None}),
        ("sglang", {"speculative-algorithm": "NEXTN"}),
        ("sglang", {"speculative-algorithm": "NGRAM", "speculative-num-draft-tokens": 8}),
        ("sglang", {"speculative-algorithm": "DFLASH", "speculative-num-draft-tokens": 8}),
        ("sglang", {"enable-hierarchical-cache": True, "hicache-ratio": 2.0}),
        ("trtllm", {"speculative-config": {"decoding_type": "MTP"}}),
        ("trtllm", {"kv-cache-config": {"host_cache_size": 1 << 30}}),
        ("llamacpp", {"threads": 1}),
        ("of-an-operator", {"max-loras": 1}),
    ],
)
def test_flags_that_go_together_have_no_conflict(engine: str, parameters: dict[str, Any]) -> None:
    assert conflicts_of(engine, parameters) == {}


def test_operator_has_the_last_word_on_a_flag() -> None:
    parameters = {"enable-hierarchical-cache": True, "disable-radix-cache": True}

    assert conflicts_of("sglang", parameters, "enable-hierarchical-cache") == {}
    assert conflicts_of("sglang", parameters, "*") == {}
