"""A second watcher of a cluster: it is silent as long as the first one is heard on the bus.

It has no view of its own to hand over: whoever begins to publish is a new boot, by which everybody
reads the cluster anew. Two that publish for a moment therefore cost reading, and nothing else.
"""

import asyncio
import signal
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.cluster.nodes import ClusterChanged
from services.cluster.publisher import HEARTBEAT_SECONDS
from shared.lifecycle import notify_ready
from shared.logging import log
from shared.messaging.bus import Bus

SILENCE_SECONDS: Final = 2 * HEARTBEAT_SECONDS + 2.0
LOOK_SECONDS: Final = 0.5


@dataclass(slots=True)
class Standby:
    """`boot_id` is that of this process's own messages."""

    bus: Bus
    cluster_id: str
    boot_id: UUID
    _heard_at: float = 0.0
    _is_watching: bool = False

    async def wait(self) -> None:
        """Return once no other watcher has been heard for long enough; from then on another one
        that is heard ends this process, which its supervisor starts again as a standby.
        """
        clock = asyncio.get_running_loop().time
        self._heard_at = clock()
        await self.bus.listen(ClusterChanged, self._hear, key=self.cluster_id)
        notify_ready()  # as ready as a standby is
        while clock() - self._heard_at < SILENCE_SECONDS:
            if not self.bus.is_connected:  # whom it cannot hear is not silent
                self._heard_at = clock()
            await asyncio.sleep(LOOK_SECONDS)
        self._is_watching = True
        log.warning("cluster_standby_took_over", cluster_id=self.cluster_id)

    async def _hear(self, message: ClusterChanged) -> None:
        if message.boot_id == self.boot_id:
            return
        self._heard_at = asyncio.get_running_loop().time()
        if self._is_watching:
            log.info("cluster_standby_yields", cluster_id=self.cluster_id)
            self._is_watching = False
            signal.raise_signal(signal.SIGTERM)
