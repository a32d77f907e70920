"""The engine's prefix cache around a level: emptied, seen to be empty, and what it was used for.

A reset is believed only if a prompt that was in the cache is computed again: engines answer 200 to
resets that did nothing. Engines are known by their counters; no other is asked for a reset.
"""

import asyncio
import random
import secrets
import zlib
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from schemas.task.benchmark import (
    LevelMark,
    LevelResult,
)
from schemas.task.modality import Modality
from schemas.task.prefix_cache import CacheReset, PrefixCacheUse
from shared.benchmarks.chat_server import ChatServer, RequestFailed
from shared.benchmarks.levels.measured_level import PromptTokens
from shared.benchmarks.traffic import RequestSize
from shared.engines.metrics import MetricNames
from shared.engines.metrics_page import read_page

COLD_HIT_SHARE: Final = 0.01
MAX_SHARE_ERROR: Final = 0.03  # of what was sent, beside the trace's
PROBE: Final = RequestSize(num_input_tokens=256, num_output_tokens=1)
PROBE_SECONDS: Final = 60.0
BUSY_TRIES: Final = 25
BUSY_PAUSE_SECONDS: Final = 0.2


class _ResetAnswer(msgspec.Struct, frozen=True):
    success: bool = True


@dataclass(frozen=True, slots=True)
class Counters:
    """Prompt tokens that were looked up, and those found, since the engine started."""

    queries: float
    hits: float


@dataclass(frozen=True, slots=True)
class Start:
    """The cache when a level begins. `template_tokens` of every prompt are found in it anyway."""

    reset: CacheReset
    counters: Counters | None = None
    template_tokens: float = 0.0


class PrefixCache(Protocol):
    async def begin(self) -> Start: ...

    async def use(self, start: Start, requests: int) -> PrefixCacheUse: ...


@dataclass(slots=True)
class ServerPrefixCache:
    """That of the server under load, over HTTP. Only one that answers chats shows what it has."""

    server: ChatServer
    rng: random.Random
    modality: Modality = Modality.TEXT

    async def begin(self) -> Start:
        """Empty the cache where the engine can, and see that it is."""
        if not self.modality.has_tokens:
            return Start(CacheReset.UNSUPPORTED)
        engine, start_counters = await self._counters()
        if engine is None or engine.reset_path is None or start_counters is None:
            return Start(CacheReset.UNSUPPORTED)
        probe = self.rng.getrandbits(64)
        await self._hits_of(probe)
        was_accepted = await reset_cache(self.server, engine.reset_path)
        hits_of_probe = await self._hits_of(probe)
        template = await self._hits_of(self.rng.getrandbits(64))
        _, counters = await self._counters()
        is_empty = was_accepted and hits_of_probe == 0
        return Start(
            CacheReset.VERIFIED if is_empty else CacheReset.FAILED, counters, template or 0.0
        )

    async def use(self, start: Start, requests: int) -> PrefixCacheUse:
        """Since `start`, by that many requests."""
        _, now = await self._counters()
        if now is None or start.counters is None:
            return PrefixCacheUse(reset=start.reset)
        queries = now.queries - start.counters.queries
        hits = now.hits - start.counters.hits
        own_hits = max(0.0, hits - start.template_tokens * requests)
        return PrefixCacheUse(
            reset=start.reset,
            queried_tokens=round(max(0.0, queries)),
            hit_tokens=round(own_hits),
            hit_share=min(1.0, own_hits / queries) if queries > 0 else 0.0,
        )

    async def _hits_of(self, seed: int) -> float | None:
        counters_before = (await self._counters())[1]
        rng = random.Random(seed)  # noqa: S311  # a prompt, not a secret
        outcome = await self.server.request(PROBE, rng, PROBE_SECONDS)
        counters_after = (await self._counters())[1]
        if counters_before is None or counters_after is None or isinstance(outcome, RequestFailed):
            return None
        return counters_after.hits - counters_before.hits

    async def _counters(self) -> tuple[MetricNames | None, Counters | None]:
        page = await self.server.metrics_page()
        engine_reading = read_page(page or "")
        if engine_reading is None:
            return None, None
        engine, reading = engine_reading
        queries, hits = reading.prefix_queried_tokens, reading.prefix_hit_tokens
        return engine, None if queries is None or hits is None else Counters(queries, hits)


async def reset_cache(server: ChatServer, path: str) -> bool:
    """Return whether the engine says that it has emptied its cache."""
    # An engine that still drops what the level before cancelled refuses for a moment.
    for _ in range(BUSY_TRIES):
        answer = await server.post(path)
        if answer is None or answer[0] in (404, 405, 501):
            return False
        status, body = answer
        if status == 200 and _says_success(body):
            return True
        await asyncio.sleep(BUSY_PAUSE_SECONDS)
    return False


def _says_success(body: bytes) -> bool:
    """VLLM of some versions and SGLang say nothing in JSON: then the status has said it."""
    try:
        return msgspec.json.decode(body, type=_ResetAnswer).success
    except msgspec.DecodeError:
        return True


def set_aside(use: PrefixCacheUse, *, is_warm: bool) -> str | None:
    """Say why the level does not describe a cold engine; None if it does."""
    if is_warm or use.hit_share is None or use.hit_share < COLD_HIT_SHARE:
        return None
    return f"{100 * use.hit_share:.0f} % of its prompt tokens came from the prefix cache"


def with_cache_use(
    level: LevelResult, use: PrefixCacheUse, prompts: PromptTokens, *, is_warm: bool
) -> LevelResult:
    """The level with what the cache did for it, marked, and set aside if it is not a cold one."""
    if is_warm:
        use = with_asked_share(use, prompts)
    aside = set_aside(use, is_warm=is_warm)
    marks = [
        *level.marks,
        *([LevelMark.CACHE_NOT_RESET] if use.reset is CacheReset.FAILED else []),
        *([LevelMark.CACHE_HITS] if aside is not None else []),
        *([LevelMark.PREFIX_SHARE] if is_share_off(use) else []),
    ]
    return msgspec.structs.replace(level, prefix_cache=use, set_aside=aside, marks=tuple(marks))


def is_share_off(use: PrefixCacheUse) -> bool:
    """True if what was sent shared more or less than the trace that it was of."""
    if use.trace_share is None or use.asked_share is None:
        return False
    return abs(use.asked_share - use.trace_share) > MAX_SHARE_ERROR


def with_asked_share(use: PrefixCacheUse, prompts: PromptTokens) -> PrefixCacheUse:
    """And with the hits that answers report, where the engine counts none."""
    if not prompts.sent:
        return use
    use = msgspec.structs.replace(
        use,
        asked_share=prompts.reusable / prompts.sent,
        trace_share=prompts.traced_shared / prompts.traced if prompts.traced else None,
    )
    if use.hit_share is not None or prompts.cached is None:
        return use
    return msgspec.structs.replace(
        use,
        queried_tokens=prompts.sent,
        hit_tokens=prompts.cached,
        hit_share=min(1.0, prompts.cached / prompts.sent),
    )


def level_seed(level: str, seed: int, reset: CacheReset) -> int:
    """Return the seed of a level's requests: the same one only where the cache was seen to be
    empty.
    """
    if reset is CacheReset.VERIFIED:
        return zlib.crc32((f"{level} {seed}" if seed else level).encode())
    return secrets.randbits(32)
