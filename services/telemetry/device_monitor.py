"""The devices of a node: opens and reads their source, and reports their inventory and health."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from schemas.errors import ErrorCode
from schemas.telemetry.readings import DeviceFacts, HealthChanged, HealthKind, Source
from services.telemetry.counters import Counters
from services.telemetry.domain.faults import CounterWatch, failing
from services.telemetry.domain.health import Change, NodeHealth, changes_between, with_health
from services.telemetry.domain.mig_changes import find_removed_instances, mig_changes
from services.telemetry.domain.recent_faults import RecentFaults
from services.telemetry.event_publisher import EventPublisher
from services.telemetry.sources.selection import SourceSelection
from services.telemetry.sources.source import (
    GpuSource,
    Inventory,
    MigDriver,
    NodeReading,
    ProbeHungError,
    SourceFailedError,
)
from services.telemetry.sources.unified_memory import (
    inventory_with_host_memory,
    with_host_memory,
)
from shared.errors import RefusedError
from shared.logging import log

MAX_REOPEN_SECONDS: Final = 10.0

T = TypeVar("T")


class DeviceMonitor:
    """Owns the source. The caller makes one call at a time.

    A source that fails is closed, and another one is opened after a growing pause.
    """

    def __init__(
        self,
        selection: SourceSelection,
        publisher: EventPublisher,
        counters: Counters,
        *,
        interval_seconds: float,
        inventory_seconds: float,
        observe: Callable[[Inventory], Awaitable[Inventory]] | None = None,
    ) -> None:
        self._observe = observe
        self._selection = selection
        self._publisher = publisher
        self._counters = counters
        self._interval_seconds = interval_seconds
        self._inventory_seconds = inventory_seconds
        self._source: GpuSource | None = None
        self._health = NodeHealth()
        self._counter_watch = CounterWatch()
        self._recent = RecentFaults()
        self._known: dict[str, DeviceFacts] = {}
        self._inventory = Inventory()
        self._names_logged: Counter[str] | None = None
        self._inventory_due_at = 0.0
        self._reopen_at = 0.0
        self._reopen_pause = 0.0
        self._closed = False

    @property
    def facts(self) -> tuple[DeviceFacts, ...]:
        """The devices that were present in this boot, with health and faults, by index."""
        devices = sorted(self._known.values(), key=lambda facts: facts.index)
        return tuple(self._recent.add_to(with_health(facts, self._health)) for facts in devices)

    @property
    def cuda_driver_version(self) -> str | None:
        """The CUDA that the driver serves; None if it is unknown."""
        return self._inventory.cuda_driver_version

    @property
    def source(self) -> Source:
        """The source that is read; while none works the one that failed."""
        return self._selection.source

    @property
    def is_open(self) -> bool:
        return self._source is not None

    @property
    def failure(self) -> str | None:
        """The reason why nothing can be read at present; None if something can."""
        if self._source is not None and self._health.is_readable:
            return None
        return self._health.hung or self._health.failed or "it is being opened"

    @property
    def driver_version(self) -> str | None:
        """The driver's version in the last inventory."""
        return self._inventory.driver_version

    async def read(self) -> NodeReading | None:
        """Take one fresh reading; None if the source does not answer."""
        if not await self._ensure_open():
            return None
        try:
            if asyncio.get_running_loop().time() >= self._inventory_due_at:
                await self._take_inventory()
            started_at = time.perf_counter()
            reading = with_host_memory(await self._opened.read(), self._known)
            self._counters.count_read(time.perf_counter() - started_at)
            if self._is_unexpected(reading) and self._may_repeat_inventory():
                await self._take_inventory()
        except SourceFailedError as error:
            await self._fail(error)
            return None
        self._report_faults(reading)
        self._report_health(self._health_of(reading))
        return reading

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Set the limit as GpuSource does. Raises RefusedError, unavailable while there is no
        source.
        """
        return await self._driven(self._source_now().set_power_limit(uuid, watts))

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        """Set the clock as GpuSource does. Raises RefusedError, unavailable while there is no
        source.
        """
        await self._driven(self._source_now().set_sm_clock(uuid, mhz))

    async def make_mig(self, uuid: str, profile: str, start: int) -> None:
        """Make an instance as MigDriver does. Raises RefusedError, unavailable while there is no
        source.
        """
        driver = self._mig_driver()
        await self._driven(driver.make_mig(uuid, profile, start))

    async def remove_mig(self, uuid: str, start: int) -> None:
        """Remove an instance as MigDriver does. Raises RefusedError, unavailable while there is no
        source.
        """
        driver = self._mig_driver()
        await self._driven(driver.remove_mig(uuid, start))

    async def repeat_enumeration(self) -> None:
        """Enumerate and report now. Raises RefusedError, unavailable while there is no source."""
        await self._driven(self._take_inventory())

    async def close(self) -> None:
        """Close the source for good."""
        self._closed = True
        await self._close_source()

    async def repeat_inventory(self) -> None:
        """Report the inventory to a bus that has lost its stream."""
        self._report_inventory()

    def _report_inventory(self) -> None:
        self._inventory_due_at = asyncio.get_running_loop().time() + self._inventory_seconds
        self._publisher.queue_inventory(
            self._selection.source,
            self.facts,
            links=self._inventory.links,
            driver_version=self._inventory.driver_version,
            cuda_driver_version=self._inventory.cuda_driver_version,
            labels=self._inventory.labels,
        )

    async def _ensure_open(self) -> bool:
        if self._source is not None:
            return True
        if self._closed or asyncio.get_running_loop().time() < self._reopen_at:
            return False
        try:
            self._source = await self._selection.open()
            self._counters.source_opens += 1
            await self._take_inventory()
        except SourceFailedError as error:
            await self._fail(error)
            return False
        return True

    @property
    def _opened(self) -> GpuSource:
        if self._source is None:
            raise SourceFailedError("the source is closed")
        return self._source

    def _source_now(self) -> GpuSource:
        if self._source is None:
            raise RefusedError(ErrorCode.UNAVAILABLE, f"the GPUs cannot be read: {self.failure}")
        return self._source

    def _mig_driver(self) -> MigDriver:
        source = self._source_now()
        if not isinstance(source, MigDriver):
            raise RefusedError(
                ErrorCode.UNSUPPORTED, f"the source {self.source} makes no MIG instances"
            )
        return source

    async def _driven(self, call: Awaitable[T]) -> T:
        """The result of a call to the driver. Raises RefusedError (unavailable) if it fails."""
        try:
            return await call
        except SourceFailedError as error:
            await self._fail(error)
            raise RefusedError(ErrorCode.UNAVAILABLE, f"the driver failed: {error}") from error

    async def _take_inventory(self) -> None:
        found_now = inventory_with_host_memory(await self._opened.inventory())
        self._inventory = found_now if self._observe is None else await self._observe(found_now)
        facts_by_uuid = {facts.uuid: facts for facts in self._inventory.devices}
        for change in mig_changes(self._known, facts_by_uuid):
            self._report(change)
        for uuid in find_removed_instances(self._known, facts_by_uuid):
            del self._known[uuid]
        self._known.update(facts_by_uuid)
        self._log_found()
        self._report_inventory()

    def _log_found(self) -> None:
        """Log which GPUs there are, at first and with each change: an agent's owner asks."""
        names = Counter(facts.name for facts in self._inventory.devices)
        if names != self._names_logged:
            models = ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
            count, source = names.total(), self._selection.source.value
            log.info("gpus_found", count=count, models=models, source=source)
            self._names_logged = names

    async def _fail(self, error: SourceFailedError) -> None:
        """Close the source, and leave it closed for longer with every failure in a row."""
        await self._close_source()
        if self._closed:
            return
        self._counters.failed_reads += 1
        self._reopen_at = asyncio.get_running_loop().time() + self._reopen_pause
        self._reopen_pause = min(
            max(self._reopen_pause * 2, self._interval_seconds), MAX_REOPEN_SECONDS
        )
        hung, failed = self._health.hung, self._health.failed
        if isinstance(error, ProbeHungError):
            hung = str(error)
        else:
            failed = str(error)
        self._report_health(dataclasses.replace(self._health, hung=hung, failed=failed))

    async def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    def _may_repeat_inventory(self) -> bool:
        """Return True once per configured interval: an inventory costs more than a reading."""
        taken_at = self._inventory_due_at - self._inventory_seconds
        return asyncio.get_running_loop().time() - taken_at >= self._interval_seconds

    def _is_unexpected(self, reading: NodeReading) -> bool:
        """Return True if a device is new, or an instance gone whose GPU is present."""
        present = {gpu.uuid for gpu in reading.gpus}
        return not present <= self._known.keys() or any(
            facts.parent_uuid in present
            for uuid, facts in self._known.items()
            if uuid not in present and uuid not in reading.lost and uuid not in reading.hung
        )

    def _health_of(self, reading: NodeReading) -> NodeHealth:
        present = {gpu.uuid for gpu in reading.gpus}
        return NodeHealth(
            lost={
                uuid: reading.lost.get(uuid, "the driver no longer reports it")
                for uuid in self._known
                if uuid not in present and uuid not in reading.hung
            },
            stuck=reading.hung,
            failing=failing(reading.gpus),
        )

    def _report_health(self, health: NodeHealth) -> None:
        """Replace the present health, and report what changed."""
        changes = changes_between(self._health, health)
        is_changed = bool(changes) or health.failing.keys() != self._health.failing.keys()
        self._health = health
        if health.is_readable:
            self._reopen_pause = 0.0
        for change in changes:
            self._report(change)
        if is_changed:
            self._report_inventory()

    def _report_faults(self, reading: NodeReading) -> None:
        """Publish faults as events, and again in every inventory that follows."""
        now = asyncio.get_running_loop().time()
        faults = [*reading.faults, *self._counter_watch.faults(reading.gpus, now)]
        for fault in faults:
            event = self._report(Change.of_fault(fault))
            self._recent.add(fault, event.message_id, event.occurred_at)
            if fault.change is HealthKind.XID and fault.xid is not None:
                self._counters.count_xid(fault.device_uuid, fault.xid)
        if faults:
            self._report_inventory()

    def _report(self, change: Change) -> HealthChanged:
        log.info("health_changed", change=change.kind, device=change.device_uuid, xid=change.xid)
        return self._publisher.queue_change(change)
