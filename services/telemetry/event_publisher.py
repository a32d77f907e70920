"""Publishes the events of this node in their order, without making readings wait for the bus."""

import asyncio
import contextlib
import os
import platform
from collections import deque
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Final, Protocol

import msgspec

from schemas.base import Event
from schemas.telemetry.readings import (
    DeviceFacts,
    GpuLink,
    GpuSampled,
    HealthChanged,
    HostFacts,
    InventoryReported,
    Source,
)
from services.telemetry.clock import NodeClock
from services.telemetry.domain.health import Change
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.waiting import within

MAX_PENDING: Final = 1000
FLUSH_SECONDS: Final = 2.0
MEBIBYTE: Final = 1 << 20


class TelemetrySink(Protocol):
    """The bus, as far as an agent publishes to it."""

    async def publish_live(self, sample: GpuSampled) -> None:
        """Never waits for an acknowledgement."""

    async def publish_event(self, event: Event) -> None:
        """Raises UnavailableError while the event cannot be stored."""


class EventPublisher:
    """Numbers events and holds them until the bus has stored them.

    During an outage of the bus it holds the newest inventory, and the newest thousand changes.
    """

    def __init__(
        self,
        sink: TelemetrySink,
        clock: NodeClock,
        *,
        node_id: str,
        interval_seconds: float,
        host: HostFacts,
        labels: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.node_id = node_id
        self.boot_id = new_id()
        self.clock = clock
        self._sink = sink
        self._interval_seconds = interval_seconds
        self._host = host
        self._labels = labels
        self._revision = 0
        self._pending: deque[HealthChanged | InventoryReported] = deque(maxlen=MAX_PENDING)
        self._wake = asyncio.Event()
        self._publishing = asyncio.Lock()

    @property
    def hostname(self) -> str:
        return self._host.hostname

    @property
    def pending_count(self) -> int:
        """Events that the bus has not stored yet."""
        return len(self._pending)

    @property
    def oldest_pending_seconds(self) -> float:
        """Age of the oldest of them; 0 without any."""
        if not self._pending:
            return 0.0
        return max(0.0, (self.clock.now() - self._pending[0].occurred_at).total_seconds())

    def queue_change(self, change: Change) -> HealthChanged:
        """The event of a change of health, of a power limit or of a locked clock."""
        event = HealthChanged(
            message_id=new_id(),
            occurred_at=self.clock.now(),
            revision=self._next_revision(),
            node_id=self.node_id,
            boot_id=self.boot_id,
            change=change.kind,
            device_uuid=change.device_uuid,
            detail=change.detail,
            xid=change.xid,
            action=change.action,
            action_source=change.action_source,
            reservation_id=change.reservation_id,
            power_limit_w=change.power_limit_w,
            sm_clock_mhz=change.sm_clock_mhz,
        )
        self._append(event)
        return event

    def queue_inventory(
        self,
        source: Source,
        devices: tuple[DeviceFacts, ...],
        *,
        links: tuple[GpuLink, ...] = (),
        driver_version: str | None,
        cuda_driver_version: str | None,
        labels: Mapping[str, str],
    ) -> None:
        """Queue the present inventory, in place of one that is not published yet. The node's own
        labels go before `labels`, the source's.
        """
        for older in [event for event in self._pending if isinstance(event, InventoryReported)]:
            self._pending.remove(older)
        self._append(
            InventoryReported(
                message_id=new_id(),
                occurred_at=self.clock.now(),
                revision=self._next_revision(),
                node_id=self.node_id,
                boot_id=self.boot_id,
                source=source,
                interval_seconds=self._interval_seconds,
                host=msgspec.structs.replace(
                    self._host,
                    driver_version=driver_version,
                    cuda_driver_version=cuda_driver_version,
                ),
                devices=devices,
                labels={**labels, **self._labels()},
                links=links,
            )
        )

    async def run(self) -> None:
        """Publish what is queued, until cancelled. Raises UnavailableError without the bus."""
        while True:
            await self._publish_pending()
            await self._wake.wait()

    async def flush(self) -> None:
        """Publish what is queued, as far as the bus stores it within 2 s."""
        with contextlib.suppress(UnavailableError, TimeoutError):
            async with within(FLUSH_SECONDS):
                await self._publish_pending()

    async def _publish_pending(self) -> None:
        async with self._publishing:
            self._wake.clear()
            while self._pending:
                event = self._pending[0]
                await self._sink.publish_event(event)
                if self._pending and self._pending[0] is event:
                    self._pending.popleft()

    def _append(self, event: HealthChanged | InventoryReported) -> None:
        self._pending.append(event)
        self._wake.set()

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision


def read_host_facts() -> HostFacts:
    return HostFacts(
        hostname=os.uname().nodename,
        cpu_count=os.cpu_count(),
        memory_total_mb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE,
        operating_system=_operating_system(),
        release=metadata.version("gpusteward"),
    )


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return os.uname().sysname
