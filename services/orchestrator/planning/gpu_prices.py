"""What GPUs cost, by the results service, which has the prices."""

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from schemas.results.prices import GetGpuPrices, GpuPrices
from schemas.task.task_file import OptimizationSpec
from shared.errors import RefusedError, UnavailableError
from shared.messaging.bus import Bus

CACHE_SECONDS: Final = 60.0
ANSWER_TIMEOUT_SECONDS: Final = 1.0


@dataclass(slots=True)
class PriceCache:
    """The prices as they were asked for last, so that looking at a task asks for none each time."""

    bus: Bus
    _prices: GpuPrices | None = None
    _is_asked_again_at: float = -math.inf

    async def prices(self) -> GpuPrices | None:
        """Return the prices of the last minute; None while the results service does not answer."""
        now = asyncio.get_running_loop().time()
        if now >= self._is_asked_again_at:
            self._is_asked_again_at = now + CACHE_SECONDS
            with suppress(UnavailableError, RefusedError):
                self._prices = await self.bus.query(
                    GetGpuPrices(), GpuPrices, timeout_seconds=ANSWER_TIMEOUT_SECONDS
                )
        return self._prices


async def prices_for(bus: Bus, spec: OptimizationSpec) -> GpuPrices | None:
    """Return the prices; None where nothing is bounded by money. Raises UnavailableError."""
    return None if spec.max_cost is None else await bus.query(GetGpuPrices(), GpuPrices)
