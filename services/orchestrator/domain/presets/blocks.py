"""What the presets of a task's `quant_config` and `parallel_config` stand for."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec.structs import replace

from schemas.errors import ErrorCode
from services.orchestrator.domain.configurations import Point
from shared.errors import RefusedError
from shared.gpu.sizing import SPELLINGS

QUANT_PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    name: dict(
        zip(("gemm_dtype", "kvcache_dtype", "attention_dtype", "moe_dtype"), types, strict=True)
    )
    for name, types in {
        "default": ("auto", "auto", "auto", "auto"),
        "kv-cache-fp8": ("auto", "fp8_e5m2", "auto", "auto"),
        "dynamic-fp8": ("fp8", "fp8_e5m2", "fp8", "fp8"),
        "bf16-stable": ("bfloat16", "fp8_e5m2", "auto", "auto"),
        "aggressive-moe": ("bfloat16", "fp8_e5m2", "fp8", "w4afp8"),
    }.items()
}
PARALLEL_PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "single-gpu": {"tp": 1, "pp": 1, "dp": 1},
    "high-throughput": {"tp": 1, "dp": 8},
    "large-model-tp": {"tp": 8},
    "large-model-tp-pp": {"tp": 8, "pp": 2},
    # vLLM knows the first of the last two, SGLang the second.
    "moe-optimized": {"tp": 2, "dp": 8, "enable_expert_parallel": True, "moe_dense_tp": 2},
    "long-context": {"tp": 4, "dcp": 4},
    "balanced": {"tp": 2, "dp": 4},
}
_QUANTIZED: Final = re.compile(
    r"(?<![a-z0-9])(awq|gptq|gguf|squeezellm|marlin|fp8|nvfp4|bitsandbytes|bnb|hqq)(?![a-z0-9])"
)


def quantization_named(model: str) -> str | None:
    """Return what the model is quantized by, according to its name."""
    match = _QUANTIZED.search(model.lower().replace("_", "-"))
    return match.group(1) if match else None


def without_presets(point: Point, known_fields: Collection[str]) -> tuple[Point, list[str]]:
    """Return the point with the fields of its presets, under those given beside them, and notes.

    Of a preset what no field of the engine takes is left out, but for degrees of parallelism, which
    would change how many GPUs it means. Raises RefusedError for an unknown preset.
    """
    quant, left_of_quant = _expand_block("quant_config", QUANT_PRESETS, point.quant, known_fields)
    parallel, left_of_parallel = _expand_block(
        "parallel_config", PARALLEL_PRESETS, point.parallel, known_fields
    )
    return replace(point, quant=quant, parallel=parallel), [*left_of_quant, *left_of_parallel]


def _expand_block(
    block: str,
    presets: Mapping[str, Mapping[str, Any]],
    fields: Mapping[str, Any],
    known_fields: Collection[str],
) -> tuple[dict[str, Any], list[str]]:
    name = fields.get("preset")
    if name is None:
        return dict(fields), []
    if name not in presets:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a preset of {', '.join(presets)}, got {name!r}",
            path=f"$.{block}.preset",
        )
    own_fields = {field: value for field, value in fields.items() if field != "preset"}
    flags: dict[str, Any] = {}
    notes = []
    for field, value in presets[name].items():
        if field in SPELLINGS or field in known_fields or value == "auto":
            flags[field] = value
        elif field not in own_fields:
            notes.append(f"{block}.preset {name!r} without {field}: the engine has no flag for it")
    return flags | own_fields, notes
