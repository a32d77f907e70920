"""Which parameters of TensorRT-LLM do not go together: tensorrt_llm/llmapi/llm_args.py."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.engines.conflicts import Conflict, read_object, whole_number

_FRACTIONS: Final = ("free-gpu-memory-fraction", "kv-cache-free-gpu-memory-fraction")
_WITH_MODEL: Final = frozenset({"DraftTarget", "Draft_Target", "Eagle", "Eagle3", "Medusa"})
_OF_TENSORRT: Final = frozenset({"Lookahead", "Medusa"})


def find_conflicts(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield parameters by hyphenated name, each with why it does not go with the others."""
    cache = read_object(parameters.get("kv-cache-config"))
    if cache:
        yield from _find_cache(parameters, cache)
    config = read_object(parameters.get("speculative-config"))
    if config:
        yield from _find_speculative(parameters, config)
    yield from _find_lora(read_object(parameters.get("lora-config")))


def _find_cache(parameters: Mapping[str, Any], cache: Mapping[str, Any]) -> Iterator[Conflict]:
    for name in _FRACTIONS:
        if name in parameters:
            yield Conflict(
                name,
                "has no effect with kv-cache-config, which takes its place as a whole: set"
                " free_gpu_memory_fraction there",
                is_fatal=False,
            )
    is_reused = cache.get("enable_block_reuse", True) is not False
    if (whole_number(cache.get("host_cache_size")) or 0) > 0 and not is_reused:
        yield Conflict(
            "kv-cache-config",
            "expected enable_block_reuse with a host_cache_size: what is offloaded are blocks to"
            " use again",
        )


def _find_speculative(
    parameters: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[Conflict]:
    name, kind = "speculative-config", config.get("decoding_type")
    backend = parameters.get("backend", "pytorch")
    if kind is None:
        yield Conflict(name, "expected a decoding_type, such as NGram, Eagle3 or MTP")
        return
    if kind in _OF_TENSORRT and backend == "pytorch":
        yield Conflict(name, f"expected another decoding_type than {kind} with backend pytorch")
    has_model = any(config.get(field) for field in ("speculative_model", "speculative_model_dir"))
    if kind in _WITH_MODEL and not has_model:
        yield Conflict(name, f"expected the draft's speculative_model for decoding_type {kind}")
    is_counted = whole_number(config.get("max_draft_len")) or kind in {"MTP", "AUTO", "Lookahead"}
    if not is_counted:
        yield Conflict(name, f"expected a max_draft_len of at least 1 for decoding_type {kind}")
    if (whole_number(parameters.get("max-beam-width")) or 1) > 1:
        yield Conflict("max-beam-width", "expected 1 with speculative decoding")


def _find_lora(config: Mapping[str, Any]) -> Iterator[Conflict]:
    loras, in_memory = (whole_number(config.get(name)) for name in ("max_loras", "max_cpu_loras"))
    if loras is not None and in_memory is not None and in_memory < loras:
        yield Conflict(
            "lora-config",
            f"expected max_cpu_loras of at least max_loras, got {in_memory} and {loras}",
        )
