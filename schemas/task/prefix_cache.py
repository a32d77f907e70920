"""An engine's prefix cache around a level."""

from enum import StrEnum

from msgspec import Struct

from schemas.base import Count


class CacheReset(StrEnum):
    """The engine's prefix cache before a level. `verified`: a prompt that it held was computed
    again; `failed`: it was not, or the engine refused.
    """

    VERIFIED = "verified"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class PrefixCacheUse(Struct, frozen=True, kw_only=True):
    """What the engine's counters say of a level's prompt tokens; None where it has none.

    What every prompt of the chat template has in common is not counted as hit. `asked_share` is how
    much of the prompts of a warm scenario had been sent or answered before, in the engine's tokens;
    `trace_share` the same of the trace whose requests these were. Of an engine without counters the
    hits are those that its answers report, of prompts that share something.
    """

    reset: CacheReset
    queried_tokens: Count | None = None
    hit_tokens: Count | None = None
    hit_share: float | None = None
    asked_share: float | None = None
    trace_share: float | None = None
