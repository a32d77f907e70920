"""Which parameters of vLLM do not go together: vllm/config/speculative.py, lora.py and cache.py."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.engines.conflicts import Conflict, find_unused, is_on, read_object, whole_number

# Those whose drafts come from a model of their own.
_WITH_MODEL: Final = frozenset({"draft_model", "eagle", "eagle3", "medusa", "mlp_speculator"})
_WITHOUT_PREDICTION: Final = frozenset({"ngram", "ngram_gpu", "draft_model", "suffix"})
_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def find_conflicts(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield parameters by hyphenated name, each with why it does not go with the others."""
    yield from _find_speculative(parameters)
    yield from _find_lora(parameters)
    if "kv-offloading-size" not in parameters:
        yield from find_unused(parameters, "kv-offloading-backend", "kv-offloading-size")


def _find_speculative(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    name = "speculative-config"
    config = read_object(parameters.get(name))
    if not config:
        return
    method, drafts = config.get("method"), config.get("num_speculative_tokens")
    if method in _WITH_MODEL and not config.get("model"):
        yield Conflict(name, f"expected the draft's `model` for method {method!r}")
    if method in _WITHOUT_PREDICTION - {"suffix"} and drafts is None:
        yield Conflict(name, f"expected `num_speculative_tokens` for method {method!r}")
    if (count := whole_number(drafts)) is not None and count < 1:
        yield Conflict(name, f"expected at least 1 of `num_speculative_tokens`, got {count}")
    low, high = (whole_number(config.get(f"prompt_lookup_{end}")) for end in ("min", "max"))
    if low is not None and high is not None and low > high:
        yield Conflict(
            name, f"expected prompt_lookup_min of at most prompt_lookup_max, got {low} and {high}"
        )
    degrees = (parameters.get("tensor-parallel-size"), config.get("draft_tensor_parallel_size"))
    model_degree, draft = map(whole_number, degrees)
    if draft is not None and draft not in {1, model_degree or 1}:
        yield Conflict(
            name,
            f"expected a draft_tensor_parallel_size of 1 or {model_degree or 1}, as of the model;"
            f" got {draft}",
        )


def _find_lora(parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    if "lora-modules" not in parameters and not is_on(parameters, "enable-lora"):
        flags = "max-loras max-lora-rank max-cpu-loras fully-sharded-loras lora-dtype"
        yield from find_unused(parameters, flags, "enable-lora")
        return
    loras, in_memory, rank = (
        whole_number(parameters.get(name))
        for name in ("max-loras", "max-cpu-loras", "max-lora-rank")
    )
    if in_memory is not None and in_memory < (loras or 1):
        yield Conflict(
            "max-cpu-loras",
            f"expected at least max-loras, the adapters of one batch ({loras or 1}); got"
            f" {in_memory}",
        )
    if rank is not None and rank not in _RANKS:
        yield Conflict(
            "max-lora-rank", f"expected one of {', '.join(map(str, _RANKS))}; got {rank}"
        )
