"""Engines' `/metrics` read under our names: one reader for all engines and versions."""

import math
from collections import defaultdict
from typing import Final

from schemas.executor.engine_samples import EngineReading
from shared.engines.metrics import MetricNames
from shared.engines.table import PROFILES
from shared.prometheus_text import samples

# Of several replicas the largest, as the fullest is the first to preempt; all else adds up.
LARGEST_OF_REPLICAS: Final = frozenset({"kv_cache_percent", "accept_length"})
ENGINES: Final = tuple(p.metrics for p in PROFILES.values() if p.metrics is not None)


def metrics_path(engine: str) -> str:
    """Return where the engine's Prometheus page is."""
    profile = PROFILES.get(engine.casefold())
    names = profile.metrics if profile is not None else None
    return names.path if names is not None else "/metrics"


def read_page(page: str) -> tuple[MetricNames, EngineReading] | None:
    """Read an engine's metrics; None if no known engine writes such a page."""
    values: dict[str, list[float]] = defaultdict(list)
    for sample in samples(page):
        values[sample.name].append(sample.value)
    for engine in ENGINES:
        value_by_name = {
            name: max(seconds) if name in LARGEST_OF_REPLICAS else math.fsum(seconds)
            for name, spellings in engine.names.items()
            if (
                seconds := next(
                    (values[spelling] for spelling in spellings if spelling in values), None
                )
            )
        }
        if not value_by_name:
            continue
        if "kv_cache_percent" in value_by_name:
            value_by_name["kv_cache_percent"] *= 100
        if "prefix_queried_tokens" in value_by_name:
            # A counter with labels of its own is not there before its first count.
            value_by_name.setdefault("prefix_hit_tokens", 0.0)
        if drafts := math.fsum(values.get(engine.drafts, ())):
            accepted = math.fsum(values.get(engine.accepted_tokens, ()))
            value_by_name["accept_length"] = 1 + accepted / drafts
        return engine, EngineReading(**value_by_name)
    return None
