"""How vLLM takes fields of `quant_config` and `parallel_config` (`vllm serve` of v0.18)."""

from collections.abc import Mapping
from typing import Final

from schemas.executor.engine_rules import TaskField
from shared.engines.task_fields import (
    ATTENTION_FP8,
    FP8,
    GEMM,
    as_flags,
    by_value,
    for_modalities,
    without_flag,
)

FIELDS: Final[Mapping[str, TaskField]] = {
    **as_flags(
        tp="tensor-parallel-size",
        pp="pipeline-parallel-size",
        dp="data-parallel-size",
        dcp="decode-context-parallel-size",
        enable_expert_parallel="enable-expert-parallel",
    ),
    **for_modalities(
        embeddings={"runner": "pooling"},
        rerank={"runner": "pooling"},
        instead_of="runner convert task",  # the last of releases before 0.11
    ),
    # int8 needs a model that was quantized so, which says it itself.
    "gemm_dtype": TaskField(values=GEMM),
    "kvcache_dtype": TaskField(values=by_value("kv-cache-dtype", "bfloat16", *FP8)),
    "attention_dtype": TaskField(
        values=without_flag("float16", "bfloat16", *ATTENTION_FP8),
        note="vLLM has no flag for it, attention follows gemm_dtype",
    ),
}
