"""How SGLang takes fields of `quant_config` and `parallel_config` (launch_server of v0.5.19)."""

from collections.abc import Mapping
from typing import Final

from schemas.executor.engine_rules import TaskField
from shared.engines.task_fields import (
    ATTENTION_FP8,
    GEMM,
    as_flags,
    by_value,
    for_modalities,
    without_flag,
)

# MoE weights of another type are a quantization of the whole model.
_MOE_WEIGHTS: Final = {"dtype": "auto", "moe-runner-backend": "flashinfer_mxfp4"}

FIELDS: Final[Mapping[str, TaskField]] = {
    **as_flags(
        tp="tp-size", pp="pp-size", dp="dp-size", ep="ep-size", moe_dense_tp="moe-dense-tp-size"
    ),
    **for_modalities(
        embeddings={"is-embedding": True},
        rerank={},
        note="rerankers that are cross-encoders need is-embedding: true, others must not have it",
        instead_of="is-embedding",
    ),
    "gemm_dtype": TaskField(
        values={**GEMM, **without_flag("int8")},
        note="SGLang runs in int8 only a model that was quantized so before",
    ),
    "kvcache_dtype": TaskField(
        values={
            "fp8": {"kv-cache-dtype": "fp8_e5m2"},
            **by_value("kv-cache-dtype", "bfloat16", "fp8_e5m2", "fp8_e4m3"),
            **without_flag("fp16", "int8", "int4"),
        },
        note="SGLang's KV cache is auto, bfloat16, fp8_e5m2 or fp8_e4m3",
    ),
    "attention_dtype": TaskField(
        values={
            **{value: {"attention-backend": "flashinfer"} for value in ATTENTION_FP8},
            **without_flag("float16", "bfloat16"),
        },
        note="SGLang has no flag for it, attention follows gemm_dtype",
    ),
    "moe_dtype": TaskField(
        values={
            "w4afp8": {"quantization": "w4afp8", **_MOE_WEIGHTS},
            "mxfp4": {"quantization": "mxfp4", **_MOE_WEIGHTS},
            "fp8": {"moe-runner-backend": "flashinfer_cutlass"},
            **without_flag("float16", "bfloat16", "int8"),
        },
        note="SGLang has no flag for it, experts follow gemm_dtype",
        implied_by="gemm_dtype",
    ),
}
