"""A cluster's second watcher on the bus: silent while the first is heard, over when it is again."""

import asyncio
import signal
from uuid import UUID

import pytest

from schemas.cluster.nodes import ClusterChanged
from services.cluster import standby as standby_module
from services.cluster.standby import Standby
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.bus import Bus
from shared.testing import eventually
from tests.support.bus import connected_bus

FIRST, SECOND = new_id(), new_id()


async def publish(bus: Bus, boot_id: UUID, cluster_id: str = "prod") -> None:
    await bus.publish_live(
        ClusterChanged(observed_at=utcnow(), cluster_id=cluster_id, boot_id=boot_id, revision=1)
    )


async def test_second_watcher_begins_and_ends_with_the_firsts_silence(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_module, "SILENCE_SECONDS", 0.6)
    monkeypatch.setattr(standby_module, "LOOK_SECONDS", 0.02)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with connected_bus(nats_url, "first") as first, connected_bus(nats_url, "second") as bus:
        waiting = asyncio.create_task(Standby(bus, "prod", SECOND).wait())
        for _ in range(10):
            await publish(first, FIRST)
            await asyncio.sleep(0.1)
        assert not waiting.done()

        await publish(first, FIRST, cluster_id="another")
        async with asyncio.timeout(5):
            await waiting
        await publish(bus, SECOND)  # its own message
        await publish(first, FIRST, cluster_id="another")
        await bus.flush()
        assert not ended.is_set()

        await publish(first, FIRST)
        await eventually(ended.is_set, what="the second watcher to end")
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
