"""How much memory a model needs of each GPU: a rule of thumb, with its terms in words.

    weights = parameters x bytes of each / (tp x pp)
    KV cache = tokens x values of a token x bytes of each / (tp x pp)
    memory = weights + KV cache + overhead

Weights divided over tensor- and pipeline-parallel ranks, and the two values (a key, a value) of
each KV head, layer and token that are cached: Kwon et al., "Efficient Memory Management for Large
Language Model Serving with PagedAttention", arXiv:2309.06180, section 3. Each replica (dp) has all
weights, but experts under expert parallelism are divided over replicas too:
https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment.html.
"""

import math
import re
from typing import Final

from msgspec import Struct

from schemas.orchestrator.views import MemoryEstimate

MIB: Final = 1 << 20
# An allowance for CUDA's context, the activations of a step and CUDA graphs, which engines log at
# their start (vLLM: "non-torch memory", "peak activation", "graph capturing").
OVERHEAD_MB: Final = 2048
USUAL_BYTES: Final = 2.0  # float16, bfloat16

# By parts of the names of data types, methods of quantization and models, the first that is found.
# 4-bit methods are half a byte here; their scales, and what is not quantized, lie in the overhead.
_BYTES: Final = (
    ("float32", 4.0),
    ("fp32", 4.0),
    *((name, 0.5) for name in ("fp4", "int4", "4bit", "4-bit", "w4a", "awq", "bitsandbytes")),
    *((name, 1.0) for name in ("fp8", "float8", "int8", "8bit", "8-bit", "w8a", "modelopt")),
    *((name, 0.5) for name in ("gptq", "marlin", "bnb")),
)
# llama.cpp's q4_k_m: so many bits, and about one more for scales (its README of tools/quantize).
_GGUF: Final = re.compile(r"(?<![a-z0-9])i?q([1-8])(?:_|(?![a-z0-9]))")
# A number of billions or millions that stands alone: not the 3B active ones of -A3B, the 4B
# effective ones of -E4B, or the active ones of 17B-16E.
_COUNT: Final = re.compile(
    r"(?<![a-z0-9.])(?:(?P<experts>\d{1,3})x)?(?P<number>\d{1,5}(?:[._]\d{1,3})?)(?P<unit>[bm])"
    r"(?![a-z0-9])(?!-\d{1,3}e(?![a-z0-9]))"
)
_UNITS: Final = {"b": 1e9, "m": 1e6}
# Llama 3's 8B, 70B and 405B cache 65,536, 163,840 and 258,048 values of a token (arXiv:2407.21783,
# table 3: 32, 80 and 126 layers, 8 KV heads of 128 values): about as the 0.4th power of their size.
_CACHED_BY_8B: Final = 65_536
_CACHED_EXPONENT: Final = 0.4


class ModelMemory(Struct, frozen=True, kw_only=True):
    """The terms of the rule. `values_of_token` are cached; `divisor` is tp x pp."""

    parameters: float
    bytes_each: float
    tokens: int
    values_of_token: float
    bytes_cached: float = USUAL_BYTES
    divisor: int = 1

    @property
    def weights_mb(self) -> int:
        return math.ceil(self.parameters * self.bytes_each / self.divisor / MIB)

    @property
    def cache_mb(self) -> int:
        values = self.tokens * self.values_of_token
        return math.ceil(values * self.bytes_cached / self.divisor / MIB)

    @property
    def memory_mb(self) -> int:
        return self.weights_mb + self.cache_mb + OVERHEAD_MB

    def in_words(self, degrees: str) -> str:
        """Return the sum; `degrees` are those that divide, such as `tp 2`."""
        return (
            f"{self.parameters / 1e9:.3g} B parameters x {self.bytes_each:g} bytes / {degrees}"
            f" = {self.weights_mb:,} MiB + KV cache of a sequence of {self.tokens:,} tokens"
            f" {self.cache_mb:,} MiB + {OVERHEAD_MB:,} MiB for CUDA and activations"
            f" = {self.memory_mb:,} MiB"
        )


def model_name(model: str) -> str:
    """Return the last part of a model's id at a hub, or of its path."""
    return model.rstrip("/").rpartition("/")[2]


def terms_text(estimate: MemoryEstimate | None) -> str:
    """Return the estimate for a refusal's end, after a blank; nothing where none was made."""
    if estimate is None or not estimate.terms:
        return ""
    return f" (memory of each GPU, a rule of thumb: {estimate.terms})"


def parameters_named(model: str) -> float | None:
    """Return the parameters that a model's name tells: 8B, 1.5b, 135m, 8x7B; None if it tells none.

    Of several numbers the largest counts. `8x7B` is taken for 56 billion, more than there are, as
    its experts share their attention.
    """
    name = model_name(model).lower()
    sizes = [
        float(match["number"].replace("_", "."))
        * _UNITS[match["unit"]]
        * int(match["experts"] or 1)
        for match in _COUNT.finditer(name)
    ]
    return max(sizes, default=None) or None


def bytes_named(text: str) -> float | None:
    """Return the bytes of a weight by the name of a data type, a quantization or a model."""
    name = text.lower().replace("_", "-")
    for part, size in _BYTES:
        if part in name:
            return size
    match = _GGUF.search(text.lower())
    return (int(match[1]) + 1) / 8 if match else None


def values_cached(parameters: float) -> float:
    """Return about how many values a model of this size caches of a token."""
    return float(_CACHED_BY_8B * (parameters / 8e9) ** _CACHED_EXPONENT)
