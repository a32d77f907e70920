"""How engines say that they take fields of `quant_config` and `parallel_config`."""

from typing import Any, Final

from schemas.executor.engine_rules import TaskField
from schemas.task.modality import Modality

FLOATS: Final = ("float16", "bfloat16", "float32")
FP8: Final = ("fp8", "fp8_e5m2", "fp8_e4m3")
ATTENTION_FP8: Final = (*FP8, "fp8_block")


def as_flags(**names: str) -> dict[str, TaskField]:
    """Return fields that are one flag each."""
    return {field: TaskField(flag=flag) for field, flag in names.items()}


def without_flag(*values: str) -> dict[str, dict[str, Any]]:
    """Return values that need no flag."""
    return {value: {} for value in values}


def by_value(flag: str, *values: str) -> dict[str, dict[str, Any]]:
    """Return values that the flag takes as they are."""
    return {value: {flag: value} for value in values}


MODALITY: Final = "modality"  # what a benchmark's requests are


def for_modalities(
    *, embeddings: dict[str, Any], rerank: dict[str, Any], note: str = "", instead_of: str = ""
) -> dict[str, TaskField]:
    """Return the parameters by which an engine answers these; for the reason `note` none."""
    values = {Modality.EMBEDDINGS.value: embeddings, Modality.RERANK.value: rerank}
    return {MODALITY: TaskField(values=values, note=note, instead_of=tuple(instead_of.split()))}


GEMM: Final[dict[str, dict[str, Any]]] = {
    "fp8": {"quantization": "fp8"},
    **by_value("dtype", *FLOATS),
}
