"""An engine's names for what it reports of itself in `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricNames:
    """An engine's names of the fields of `EngineReading`, newest release first.

    `drafts` and `accepted_tokens` give the accept length where it is counted and not reported;
    `reset_path` empties the prefix cache. `path` is where its Prometheus page is.
    """

    engine: str
    names: Mapping[str, tuple[str, ...]]
    drafts: str = ""
    accepted_tokens: str = ""
    reset_path: str | None = None
    path: str = "/metrics"
