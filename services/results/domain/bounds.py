"""What bounds a level, by what its engine, its GPUs and its requests showed in its window."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from schemas.task.benchmark import LevelMark, LevelResult
from schemas.task.level_bound import Bound, LevelBound

THROTTLED_SHARE: Final = 0.2
PREEMPTED_SHARE: Final = 0.01
WAITING_SHARE: Final = 0.1
FULL_KV_PERCENT: Final = 85.0
ALL_RUN_SHARE: Final = 0.8
# More room would not help a level of which so much is the reading of prompts.
MOSTLY: Final = 0.6
CLIENT_MARKS: Final = (LevelMark.CLIENT_LIMITED, LevelMark.SENT_LATE)


class WindowFacts(Struct, frozen=True, kw_only=True):
    """Means over the samples of one level's window; None is unknown.

    Throttled shares are of the GPUs' samples.
    """

    running: float | None = None
    running_most: float | None = None
    waiting: float | None = None
    kv_cache_percent: float | None = None
    preemptions: float | None = None
    power_throttled: float | None = None
    thermal_throttled: float | None = None

    @property
    def waits(self) -> bool:
        waiting = self.waiting or 0.0
        return waiting > 0 and waiting >= WAITING_SHARE * (waiting + (self.running or 0.0))

    @property
    def is_kv_cache_full(self) -> bool:
        """True if one more request like those that run had no room."""
        used = self.kv_cache_percent or 0.0
        is_full = used >= FULL_KV_PERCENT
        return is_full or bool(self.running and used * (1 + 1 / self.running) >= 100)


def bounds_of(
    levels: Sequence[LevelResult], facts: Sequence[WindowFacts]
) -> list[LevelBound | None]:
    """Return what bounds each level; None where nothing is known of its engine, no request was
    completed, or answers have no tokens to go by.
    """
    pairs = list(zip(levels, facts, strict=True))
    token_seconds = prefill_token_seconds([level for level, facts in pairs if not facts.waits])
    return [
        None
        if facts.running is None
        or not level.num_completed_requests
        or not level.modality.has_tokens
        else bound_of(level, facts, token_seconds)
        for level, facts in pairs
    ]


def prefill_token_seconds(levels: Sequence[LevelResult]) -> float | None:
    """Return the seconds that a prompt token costs beyond the step that it is part of; None without
    a level.

    By the request that was answered first of all, on levels in which none wait: its time to the
    first token is a step like those that give one token each, and the prompt.
    """
    costs = [
        max(0.0, stats.ttft.min - stats.tpot.min) / stats.num_input_tokens.mean
        for stats in (level.stats for level in levels)
        if stats.ttft and stats.tpot and stats.num_input_tokens and stats.num_input_tokens.mean
    ]
    return min(costs, default=None)


def bound_of(level: LevelResult, facts: WindowFacts, token_seconds: float | None) -> LevelBound:
    """Return the bound of one level: what falsifies the rest comes first, then limits, then
    work.
    """
    share = None
    if token_seconds is not None:
        share = min(1.0, token_seconds * level.mean_input_throughput_tokens_per_s)
    return (
        _by_client(level)
        or _by_throttling(facts)
        or _by_prompts(share, MOSTLY)
        or _by_kv_cache(level, facts)
        or _by_queue(facts)
        or _by_prompts(share, 0.5)
        or _by_the_rest(facts, share)
    )


def _by_client(level: LevelResult) -> LevelBound | None:
    if not any(mark in CLIENT_MARKS for mark in level.marks):
        return None
    lag = 1000 * (level.client_lag_p99_seconds or 0.0)
    late_ms = 1000 * (level.lateness_p99_seconds or 0.0)
    text = f"read answers {lag:.1f} ms and sent requests {late_ms:.1f} ms late (p99)"
    return LevelBound(bound=Bound.CLIENT, evidence=f"the load generator {text}")


def _by_throttling(facts: WindowFacts) -> LevelBound | None:
    power, thermal = facts.power_throttled or 0.0, facts.thermal_throttled or 0.0
    if max(power, thermal) < THROTTLED_SHARE:
        return None
    is_power = power >= thermal
    return LevelBound(
        bound=Bound.POWER if is_power else Bound.THERMAL,
        evidence=f"its GPUs were slowed down for {'power' if is_power else 'heat'} in"
        f" {100 * max(power, thermal):.0f} % of their samples",
    )


def _by_prompts(share: float | None, least: float) -> LevelBound | None:
    if share is None or share < least:
        return None
    evidence = f"reading prompts takes {100 * share:.0f} % of its time"
    return LevelBound(bound=Bound.PREFILL, evidence=evidence)


def _by_kv_cache(level: LevelResult, facts: WindowFacts) -> LevelBound | None:
    preempted = facts.preemptions or 0.0
    is_full = facts.waits and facts.is_kv_cache_full
    if not is_full and preempted <= PREEMPTED_SHARE * level.num_completed_requests:
        return None
    full = f"{facts.kv_cache_percent:.0f} % full, " if facts.kv_cache_percent is not None else ""
    return LevelBound(
        bound=Bound.KV_CACHE,
        evidence=f"KV cache {full}{preempted:.0f} preemptions, {facts.waiting or 0.0:.1f} wait",
    )


def _by_queue(facts: WindowFacts) -> LevelBound | None:
    """Requests wait while as many run as ever do; otherwise it is work that they wait for."""
    most = facts.running_most or 0.0
    if not facts.waits or (facts.running or 0.0) < ALL_RUN_SHARE * most:
        return None
    return LevelBound(
        bound=Bound.QUEUE,
        evidence=f"{facts.waiting:.1f} requests wait while {facts.running:.1f} run, at most"
        f" {most:.0f} at once",
    )


def _by_the_rest(facts: WindowFacts, share: float | None) -> LevelBound:
    if facts.waits and share is None:
        return LevelBound(
            bound=Bound.PREFILL,
            evidence=f"{facts.waiting:.1f} requests wait although there is room for more",
        )
    prompts = "little" if share is None else f"{100 * share:.0f} %"
    return LevelBound(
        bound=Bound.DECODE,
        evidence=f"reading prompts takes {prompts} of its time, steps of decoding and the memory"
        " that they read the rest",
    )
