"""Engines' `/metrics` under our names: one table for all engines and versions."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.executor.engine_samples import EngineReading
from shared.prometheus_text import samples


@dataclass(frozen=True, slots=True)
class EngineNames:
    """An engine's names of the fields of `EngineReading`, newest release first.

    `drafts` and `accepted_tokens` give the accept length where it is counted and not reported;
    `reset_path` empties the prefix cache.
    """

    engine: str
    names: Mapping[str, tuple[str, ...]]
    drafts: str = ""
    accepted_tokens: str = ""
    reset_path: str | None = None


# Of several replicas the largest, as the fullest is the first to preempt; all else adds up.
LARGEST: Final = frozenset({"kv_cache_percent", "accept_length"})

ENGINES: Final = (
    # vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py; the older names are of 0.8.
    EngineNames(
        "vllm",
        {
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
            "kv_cache_percent": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "preemptions": ("vllm:num_preemptions_total",),
            "prefix_queried_tokens": (
                *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
                "vllm:gpu_prefix_cache_queries_total",
            ),
            "prefix_hit_tokens": (
                *("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
                "vllm:gpu_prefix_cache_hits_total",
            ),
            "prompt_tokens": ("vllm:prompt_tokens_total",),
            "generation_tokens": ("vllm:generation_tokens_total",),
        },
        drafts="vllm:spec_decode_num_drafts_total",
        accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
        reset_path="/reset_prefix_cache",
    ),
    # sglang/srt/observability/metrics_collector.py; it counts no look-ups, but every prompt is one.
    EngineNames(
        "sglang",
        {
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
            "kv_cache_percent": ("sglang:token_usage",),
            "preemptions": ("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
            "prefix_queried_tokens": ("sglang:prompt_tokens_total",),
            "prefix_hit_tokens": ("sglang:cached_tokens_total",),
            "prompt_tokens": ("sglang:prompt_tokens_total",),
            "generation_tokens": ("sglang:generation_tokens_total",),
            "accept_length": ("sglang:spec_accept_length",),
        },
        reset_path="/flush_cache",
    ),
    # tools/server/server-context.cpp of llama.cpp; the KV cache's share left it in 2025.
    EngineNames(
        "llamacpp",
        {
            "running": ("llamacpp:requests_processing",),
            "waiting": ("llamacpp:requests_deferred",),
            "kv_cache_percent": ("llamacpp:kv_cache_usage_ratio",),
            "prompt_tokens": ("llamacpp:prompt_tokens_total",),
            "generation_tokens": ("llamacpp:tokens_predicted_total",),
        },
    ),
)


def read_page(page: str) -> tuple[EngineNames, EngineReading] | None:
    """None if no known engine writes such a page."""
    values: dict[str, list[float]] = defaultdict(list)
    for sample in samples(page):
        values[sample.name].append(sample.value)
    for engine in ENGINES:
        found = {
            name: max(told) if name in LARGEST else math.fsum(told)
            for name, spellings in engine.names.items()
            if (told := next((values[each] for each in spellings if each in values), None))
        }
        if not found:
            continue
        if "kv_cache_percent" in found:
            found["kv_cache_percent"] *= 100
        if "prefix_queried_tokens" in found:
            # A counter with labels of its own is not there before its first count.
            found.setdefault("prefix_hit_tokens", 0.0)
        if drafts := math.fsum(values.get(engine.drafts, ())):
            accepted = math.fsum(values.get(engine.accepted_tokens, ()))
            found["accept_length"] = 1 + accepted / drafts
        return engine, EngineReading(**found)
    return None
