"""One attempt's share of the compile caches."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path

from schemas.executor.attempts import StartExperiment
from services.executor.engines.compile_cache import CacheKey, CacheLease, CompileCaches


@dataclass(slots=True, kw_only=True)
class AttemptCache:
    """Held from the engine's start until nothing of it runs."""

    command: StartExperiment
    caches: CompileCaches
    is_good: bool = False  # the engine became ready with it
    _held_cache: CacheLease | None = None
    _is_over: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, image: str) -> Path | None:
        """Return the directory in which this attempt's engine keeps what it compiles; None for no
        cache.

        Blocks while it reads the disk.
        """
        # Of ranks only the first ever shows that it is ready.
        if not self.caches.max_bytes or self.command.gang is not None:
            return None
        # A start that was cut off may still ask in its thread when all is over.
        with self._lock:
            if self._held_cache is None and not self._is_over:
                self._held_cache = self.caches.take(CacheKey.of(self.command, image))
            return self._held_cache.files if self._held_cache is not None else None

    async def release(self) -> None:
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        with self._lock:
            self._is_over = True
            if self._held_cache is not None:
                self._held_cache.release(is_good=self.is_good)
                self._held_cache = None
