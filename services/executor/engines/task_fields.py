"""How vLLM and SGLang take the fields of a task's `quant_config` and `parallel_config`.

From `vllm serve --help` of v0.18 and `sglang.launch_server --help` of v0.5.19.
"""

from collections.abc import Mapping
from typing import Any, Final

from schemas.executor.engine_rules import TaskField

_FLOATS: Final = ("float16", "bfloat16", "float32")
_FP8: Final = ("fp8", "fp8_e5m2", "fp8_e4m3")
_ATTENTION_FP8: Final = (*_FP8, "fp8_block")


def _flags(**names: str) -> dict[str, TaskField]:
    return {field: TaskField(flag=flag) for field, flag in names.items()}


def _left_out(*values: str) -> dict[str, dict[str, Any]]:
    return {value: {} for value in values}


def _each(flag: str, *values: str) -> dict[str, dict[str, Any]]:
    return {value: {flag: value} for value in values}


_GEMM: Final = {"fp8": {"quantization": "fp8"}, **_each("dtype", *_FLOATS)}

VLLM_FIELDS: Final[Mapping[str, TaskField]] = {
    **_flags(
        tp="tensor-parallel-size",
        pp="pipeline-parallel-size",
        dp="data-parallel-size",
        dcp="decode-context-parallel-size",
        enable_expert_parallel="enable-expert-parallel",
    ),
    # int8 needs a model that was quantized so, which says it itself.
    "gemm_dtype": TaskField(values=_GEMM),
    "kvcache_dtype": TaskField(values=_each("kv-cache-dtype", "bfloat16", *_FP8)),
    "attention_dtype": TaskField(
        values=_left_out("float16", "bfloat16", *_ATTENTION_FP8),
        note="vLLM has no flag for it, attention follows gemm_dtype",
    ),
}

# MoE weights of another type are a quantization of the whole model.
_MOE_WEIGHTS: Final = {"dtype": "auto", "moe-runner-backend": "flashinfer_mxfp4"}

SGLANG_FIELDS: Final[Mapping[str, TaskField]] = {
    **_flags(
        tp="tp-size", pp="pp-size", dp="dp-size", ep="ep-size", moe_dense_tp="moe-dense-tp-size"
    ),
    "gemm_dtype": TaskField(
        values={**_GEMM, **_left_out("int8")},
        note="SGLang runs in int8 only a model that was quantized so before",
    ),
    "kvcache_dtype": TaskField(
        values={
            "fp8": {"kv-cache-dtype": "fp8_e5m2"},
            **_each("kv-cache-dtype", "bfloat16", "fp8_e5m2", "fp8_e4m3"),
            **_left_out("fp16", "int8", "int4"),
        },
        note="SGLang's KV cache is auto, bfloat16, fp8_e5m2 or fp8_e4m3",
    ),
    "attention_dtype": TaskField(
        values={
            **{value: {"attention-backend": "flashinfer"} for value in _ATTENTION_FP8},
            **_left_out("float16", "bfloat16"),
        },
        note="SGLang has no flag for it, attention follows gemm_dtype",
    ),
    "moe_dtype": TaskField(
        values={
            "w4afp8": {"quantization": "w4afp8", **_MOE_WEIGHTS},
            "mxfp4": {"quantization": "mxfp4", **_MOE_WEIGHTS},
            "fp8": {"moe-runner-backend": "flashinfer_cutlass"},
            **_left_out("float16", "bfloat16", "int8"),
        },
        note="SGLang has no flag for it, experts follow gemm_dtype",
        implied_by="gemm_dtype",
    ),
}
