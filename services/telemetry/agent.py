"""The agent of one node: reads on a schedule, tells what it saw, and what became of its devices."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.telemetry import DeviceFacts, GpuSampled, HealthKind, Source
from services.telemetry.announcer import Announcer
from services.telemetry.choice import SourceChoice
from services.telemetry.domain.health import Change, NodeHealth, changes_between, with_health
from services.telemetry.domain.ticks import next_slot
from services.telemetry.ports import (
    GpuSource,
    Inventory,
    Outlet,
    ProbeHungError,
    Reading,
    SourceFailedError,
)
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.logging import log

CACHE_SECONDS: Final = 5.0
MAX_REOPEN_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often the agent reads, and how often it repeats its inventory."""

    interval_seconds: float
    inventory_seconds: float


class Agent:
    """Owns the source and the numbering of samples. One reading at a time, whoever asks for it."""

    def __init__(
        self,
        choice: SourceChoice,
        announcer: Announcer,
        outlet: Outlet,
        cadence: Cadence,
        *,
        release: Callable[[UUID], None],
    ) -> None:
        self._choice = choice
        self._announcer = announcer
        self._outlet = outlet
        self._cadence = cadence
        self._release = release
        self._reading = asyncio.Lock()
        self._looked = asyncio.Event()
        self._source: GpuSource | None = None
        self._health = NodeHealth()
        self._known: dict[str, DeviceFacts] = {}
        self._inventory = Inventory()
        self._inventory_due_at = 0.0
        self._reopen_at = 0.0
        self._reopen_pause = 0.0
        self._sequence = 0
        self._stopping = False
        self._latest: tuple[float, GpuSampled] | None = None

    async def start(self) -> None:
        """Say that there is an agent."""
        self._announcer.announce_change(Change(HealthKind.AGENT_STARTED))

    async def settle(self) -> None:
        """Wait for the first look at the devices, but not for long: a driver may hang at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), SETTLE_SECONDS)

    async def stop(self) -> None:
        """Say that the stop is meant, and let go of the driver."""
        self._stopping = True
        await self._close()
        self._announcer.announce_change(Change(HealthKind.AGENT_STOPPED))
        await self._announcer.flush()

    async def run(self) -> None:
        """Take a reading every interval, until cancelled."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        last = 0
        while True:
            await self._take()
            slot = next_slot(started_at, self._cadence.interval_seconds, loop.time(), last)
            # A slot that was missed keeps its number, so that the gap can be counted.
            self._sequence += slot.number - last - 1
            last = slot.number
            await asyncio.sleep(slot.due_at - loop.time())

    async def snapshot(self, *, use_cache: bool, released: UUID | None) -> GpuSampled:
        """A reading begun after this call, or with `use_cache` one of the last 5 s.

        Raises RefusedError (unavailable) while the source does not answer.
        """
        if released is not None:
            self._release(released)
        elif use_cache and self._latest is not None:
            taken_at, sample = self._latest
            if asyncio.get_running_loop().time() - taken_at <= CACHE_SECONDS:
                return sample
        fresh = await self._take() if self._source is not None else None
        if fresh is None:
            cause = self._health.hung or self._health.failed or "it is being opened"
            raise RefusedError(ErrorCode.UNAVAILABLE, f"the GPUs cannot be read: {cause}")
        return fresh

    async def repeat_inventory(self) -> None:
        """Tell the inventory again: whoever kept it has lost it."""
        self._tell_inventory()

    async def _take(self) -> GpuSampled | None:
        """Read under the next number and publish; None if the source does not answer."""
        async with self._reading:
            self._sequence += 1
            reading = await self._read()
            self._looked.set()
            if reading is None:
                return None
            sample = self._sample(reading)
            self._latest = (asyncio.get_running_loop().time(), sample)
            if sample.source is not Source.NONE:
                await self._outlet.publish_sample(sample)
            return sample

    async def _read(self) -> Reading | None:
        if not await self._is_open():
            return None
        try:
            if asyncio.get_running_loop().time() >= self._inventory_due_at:
                await self._take_inventory()
            reading = await self._opened.read()
            if any(gpu.uuid not in self._known for gpu in reading.gpus):
                await self._take_inventory()
        except SourceFailedError as error:
            await self._fail(error)
            return None
        self._note(NodeHealth(lost=self._missing(reading)))
        return reading

    async def _is_open(self) -> bool:
        """Whether there is a source to read from; tries to open one when it is time to."""
        if self._source is not None:
            return True
        if self._stopping or asyncio.get_running_loop().time() < self._reopen_at:
            return False
        try:
            self._source = await self._choice.open()
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

    async def _take_inventory(self) -> None:
        self._inventory = await self._opened.inventory()
        self._known.update({facts.uuid: facts for facts in self._inventory.devices})
        self._tell_inventory()

    async def _fail(self, error: SourceFailedError) -> None:
        """Close the source, and leave it closed for longer with every failure in a row."""
        await self._close()
        if self._stopping:
            return
        self._reopen_at = asyncio.get_running_loop().time() + self._reopen_pause
        shortest = self._cadence.interval_seconds
        self._reopen_pause = min(max(self._reopen_pause * 2, shortest), MAX_REOPEN_SECONDS)
        hung, failed = self._health.hung, self._health.failed
        if isinstance(error, ProbeHungError):
            hung = str(error)
        else:
            failed = str(error)
        self._note(NodeHealth(hung=hung, failed=failed, lost=self._health.lost))

    async def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    def _missing(self, reading: Reading) -> dict[str, str]:
        present = {gpu.uuid for gpu in reading.gpus}
        return {
            uuid: reading.lost.get(uuid, "the driver no longer reports it")
            for uuid in self._known
            if uuid not in present
        }

    def _note(self, health: NodeHealth) -> None:
        """Take over what is seen, and tell what is new about it."""
        changes = changes_between(self._health, health)
        self._health = health
        if health.is_readable:
            self._reopen_pause = 0.0
        for change in changes:
            log.info("health_changed", change=change.kind, device=change.device_uuid)
            self._announcer.announce_change(change)
        if changes:
            self._tell_inventory()

    def _tell_inventory(self) -> None:
        self._inventory_due_at = asyncio.get_running_loop().time() + self._cadence.inventory_seconds
        devices = sorted(self._known.values(), key=lambda facts: facts.index)
        self._announcer.announce_inventory(
            self._choice.source,
            tuple(with_health(facts, self._health) for facts in devices),
            driver_version=self._inventory.driver_version,
            cuda_driver_version=self._inventory.cuda_driver_version,
        )

    def _sample(self, reading: Reading) -> GpuSampled:
        return GpuSampled(
            node_id=self._announcer.node_id,
            boot_id=self._announcer.boot_id,
            sequence=self._sequence,
            observed_at=utcnow(),
            interval_seconds=self._cadence.interval_seconds,
            source=self._choice.source,
            gpus=reading.gpus,
        )
