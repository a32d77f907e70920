"""Hears and asks one telemetry agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from schemas.telemetry.readings import (
    GetSnapshot,
    GpuSampled,
    HealthChanged,
    HealthKind,
    InventoryReported,
)
from shared.messaging.bus import Bus
from shared.testing import eventually
from tests.support.bus import connected_bus

NODE: Final = "node-a"


@dataclass
class Watcher:
    """Everything an agent told, and a way to ask it."""

    bus: Bus
    samples: list[GpuSampled] = field(default_factory=list)
    inventories: list[InventoryReported] = field(default_factory=list)
    health: list[HealthChanged] = field(default_factory=list)

    async def watch(self) -> None:
        async def keep_sample(sample: GpuSampled) -> None:
            self.samples.append(sample)

        async def keep_inventory(inventory: InventoryReported) -> None:
            self.inventories.append(inventory)

        async def keep_health(change: HealthChanged) -> None:
            self.health.append(change)

        await self.bus.listen(GpuSampled, keep_sample, key=NODE)
        await self.bus.listen(InventoryReported, keep_inventory, key=NODE)
        await self.bus.listen(HealthChanged, keep_health, key=NODE)
        await self.bus.nats.flush()

    @property
    def changes(self) -> list[HealthKind]:
        return [event.change for event in self.health]

    async def snapshot(
        self, *, use_cache: bool = False, released: UUID | None = None
    ) -> GpuSampled:
        query = GetSnapshot(node_id=NODE, use_cache=use_cache, released_reservation_id=released)
        return await self.bus.query(query, GpuSampled)

    async def samples_beyond(self, count: int) -> None:
        wanted = len(self.samples) + count
        await eventually(lambda: len(self.samples) >= wanted, what=f"{count} samples more")

    def used_mb(self) -> int:
        return self.samples[-1].gpus[0].memory_used_mb or 0


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watcher]:
    async with connected_bus(url, "watcher") as bus:
        watcher = Watcher(bus)
        await watcher.watch()
        yield watcher
