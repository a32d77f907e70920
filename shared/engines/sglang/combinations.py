"""Which parameters of SGLang do not go together: sglang/srt/server_args.py."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.engines.conflicts import Conflict, find_unused, is_on, whole_number

_STEPS: Final = "speculative-num-steps"
_TOP: Final = "speculative-eagle-topk"
_DRAFTS: Final = "speculative-num-draft-tokens"
# Models with layers that predict further tokens are their own draft under the other names.
_WITH_MODEL: Final = frozenset({"EAGLE3", "STANDALONE"})
_OF_EAGLE: Final = _WITH_MODEL | {"EAGLE", "NEXTN"}


def find_conflicts(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield parameters by hyphenated name, each with why it does not go with the others."""
    algorithm = str(parameters.get("speculative-algorithm") or "").upper()
    if algorithm:
        yield from _find_speculative(parameters, algorithm)
    else:
        names = f"{_STEPS} {_TOP} {_DRAFTS} speculative-draft-model-path"
        yield from find_unused(parameters, names, "speculative-algorithm")
    yield from _find_offload(parameters)
    yield from _find_lora(parameters, algorithm)


def _find_speculative(parameters: Mapping[str, Any], algorithm: str) -> Iterator[Conflict]:
    has_model = "speculative-draft-model-path" in parameters
    if algorithm in _WITH_MODEL and not has_model:
        yield Conflict(
            "speculative-algorithm", f"expected a speculative-draft-model-path with {algorithm}"
        )
    if algorithm == "NGRAM" and has_model:
        yield Conflict(
            "speculative-draft-model-path",
            "has no effect with NGRAM, which needs no draft model",
            is_fatal=False,
        )
    if algorithm in _OF_EAGLE and _STEPS not in parameters:
        for name in (_TOP, _DRAFTS):
            if name in parameters:
                yield Conflict(
                    name, f"expected {_STEPS}, {_TOP} and {_DRAFTS} together, or none of them"
                )
    steps, top, drafts = (whole_number(parameters.get(name)) for name in (_STEPS, _TOP, _DRAFTS))
    if steps is not None and top == 1 and drafts is not None and drafts != steps + 1:
        yield Conflict(
            _DRAFTS,
            f"expected {steps + 1}, one more than {_STEPS}, where {_TOP} is 1: SGLang takes that"
            f" instead of {drafts}",
            is_fatal=False,
        )
    if is_on(parameters, "enable-mixed-chunk"):
        yield Conflict(
            "enable-mixed-chunk",
            "has no effect with speculative decoding: SGLang turns it off",
            is_fatal=False,
        )


def _find_offload(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    if not is_on(parameters, "enable-hierarchical-cache"):
        names = (
            "hicache-ratio hicache-size hicache-write-policy hicache-io-backend hicache-mem-layout"
        )
        yield from find_unused(parameters, names, "enable-hierarchical-cache")
        return
    if is_on(parameters, "disable-radix-cache"):
        yield Conflict(
            "enable-hierarchical-cache",
            "does not go with disable-radix-cache: what it offloads is the radix cache",
        )
    if (whole_number(parameters.get("hicache-size")) or 0) > 0 and "hicache-ratio" in parameters:
        yield Conflict(
            "hicache-ratio", "has no effect with a hicache-size, which goes first", is_fatal=False
        )


def _find_lora(parameters: Mapping[str, Any], algorithm: str) -> Iterator[Conflict]:
    has_paths = "lora-paths" in parameters
    if not has_paths and not is_on(parameters, "enable-lora"):
        names = "max-loras-per-batch max-loaded-loras max-lora-rank lora-backend"
        yield from find_unused(parameters, names, "enable-lora")
        return
    if algorithm not in {"", "NGRAM"}:
        yield Conflict(
            "speculative-algorithm", f"expected NGRAM with LoRA adapters, got {algorithm}"
        )
    is_initialized = "max-lora-rank" in parameters and "lora-target-modules" in parameters
    if not has_paths and not is_initialized:
        yield Conflict(
            "enable-lora", "expected lora-paths, or both of max-lora-rank and lora-target-modules"
        )
    batch, loaded = (
        whole_number(parameters.get(name)) for name in ("max-loras-per-batch", "max-loaded-loras")
    )
    if batch is not None and loaded is not None and loaded < batch:
        yield Conflict(
            "max-loaded-loras", f"expected at least max-loras-per-batch ({batch}), got {loaded}"
        )
