"""A node without hardware: a made-up source that does what a test says, and what was told of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from schemas.base import Event
from schemas.telemetry.readings import (
    DeviceFacts,
    GpuReading,
    GpuSampled,
    HealthChanged,
    HostFacts,
    InventoryReported,
    Source,
)
from services.telemetry.agent import Agent
from services.telemetry.clock import NodeClock
from services.telemetry.counters import Counters
from services.telemetry.device_monitor import DeviceMonitor
from services.telemetry.event_publisher import EventPublisher
from services.telemetry.sources.selection import SourceSelection
from services.telemetry.sources.source import Inventory, NodeReading

GPU = DeviceFacts(uuid="GPU-0", index=0, name="H100")
OTHER = DeviceFacts(uuid="GPU-1", index=1, name="H100")
DEFAULT_W = 700.0


@dataclass
class FakeSource:
    """Stands for a driver; the test sets what it has and what it says."""

    devices: tuple[DeviceFacts, ...] = (GPU, OTHER)
    reading: NodeReading | Exception | None = None
    inventories: int = 0
    closed: int = 0
    limits: dict[str, float] = field(default_factory=dict)
    clocks: dict[str, int | None] = field(default_factory=dict)
    on_limit: Callable[[str, float | None], Awaitable[None]] | None = None

    async def open(self) -> None:
        """Always there."""

    async def inventory(self) -> Inventory:
        self.inventories += 1
        return Inventory(devices=self.devices)

    async def read(self) -> NodeReading:
        if isinstance(self.reading, Exception):
            raise self.reading
        return self.reading or NodeReading(gpus=tuple(reading_of(facts) for facts in self.devices))

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        if self.on_limit is not None:
            await self.on_limit(uuid, watts)
        before = self.limits.get(uuid, DEFAULT_W)
        self.limits[uuid] = DEFAULT_W if watts is None else watts
        return before

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        if self.on_limit is not None:
            await self.on_limit(uuid, mhz)
        self.clocks[uuid] = mhz

    @property
    def source(self) -> Source:
        return Source.NVML

    async def close(self) -> None:
        self.closed += 1


def reading_of(facts: DeviceFacts, **values: Any) -> GpuReading:
    return GpuReading(uuid=facts.uuid, index=facts.index, **values)


@dataclass
class Heard:
    """An outlet that keeps what it is given."""

    events: list[Event] = field(default_factory=list)
    samples: list[GpuSampled] = field(default_factory=list)

    async def publish_live(self, sample: GpuSampled) -> None:
        self.samples.append(sample)

    async def publish_event(self, event: Event) -> None:
        self.events.append(event)


class Node:
    """DeviceMonitor of a node, read from one source."""

    def __init__(self, source: FakeSource) -> None:
        self.heard = Heard()
        self.counters = Counters()
        self.publisher = EventPublisher(
            self.heard,
            NodeClock(),
            node_id="node-a",
            interval_seconds=1.0,
            host=HostFacts(hostname="host-a"),
        )
        selection = SourceSelection([(Source.NVML, lambda: source)], forced=True)
        self.devices = DeviceMonitor(
            selection, self.publisher, self.counters, interval_seconds=0.0, inventory_seconds=30.0
        )
        self.agent = Agent(
            self.devices,
            self.publisher,
            self.heard,
            self.counters,
            interval_seconds=1.0,
            on_released=lambda _: None,
        )

    async def changes(self) -> list[HealthChanged]:
        await self.publisher.flush()
        return [event for event in self.heard.events if isinstance(event, HealthChanged)]

    async def inventory(self) -> InventoryReported:
        await self.publisher.flush()
        return [event for event in self.heard.events if isinstance(event, InventoryReported)][-1]
