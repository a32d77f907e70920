"""The agent of one node: reads on a schedule, numbers what it saw, and answers about it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.monitoring import MonitoringView, StartMonitoring
from schemas.telemetry import DeviceFacts, GpuSampled, HealthKind, SetBurst, Source
from services.telemetry.announcer import Announcer
from services.telemetry.devices import Devices
from services.telemetry.domain.health import Change
from services.telemetry.domain.pace import MOST_WISHES, Pace
from services.telemetry.domain.sessions import MOST_RUNNING, Sessions
from services.telemetry.domain.ticks import next_slot
from services.telemetry.figures import Figures
from services.telemetry.ports import Outlet, Reading
from shared.errors import RefusedError

CACHE_SECONDS: Final = 5.0
FRESH_INTERVALS: Final = 3
SETTLE_SECONDS: Final = 5.0


class Agent:
    """Owns the numbering of samples. One call to the devices at a time, whoever asks for it."""

    def __init__(
        self,
        devices: Devices,
        announcer: Announcer,
        outlet: Outlet,
        figures: Figures,
        *,
        source: Callable[[], Source],
        interval_seconds: float,
        release: Callable[[UUID], None],
    ) -> None:
        self._devices = devices
        self._announcer = announcer
        self._outlet = outlet
        self._figures = figures
        self._source = source
        self._release = release
        self._interval_seconds = interval_seconds
        self._pace = Pace(interval_seconds)
        self._sessions = Sessions()
        self._one_call = asyncio.Lock()
        self._looked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._sequence = 0
        self._newest: tuple[float, GpuSampled] | None = None
        self._may_answer_from_cache = False

    @property
    def newest(self) -> GpuSampled | None:
        """The last sample, however old."""
        return None if self._newest is None else self._newest[1]

    @property
    def fresh(self) -> GpuSampled | None:
        """The last sample, unless three configured intervals have gone by since."""
        if self._newest is None or self.trouble is not None:
            return None
        taken_at, sample = self._newest
        return sample if _now() - taken_at <= FRESH_INTERVALS * self._interval_seconds else None

    @property
    def driver_version(self) -> str | None:
        """None if unknown."""
        return self._devices.driver_version

    @property
    def facts(self) -> tuple[DeviceFacts, ...]:
        """Every device, with its health."""
        return self._devices.facts

    @property
    def sequence(self) -> int:
        """The number of the newest tick."""
        return self._sequence

    @property
    def interval_seconds(self) -> float:
        """Until the next tick, at present."""
        return self._pace.interval_after(_now())

    @property
    def trouble(self) -> str | None:
        """Why nothing can be read at present; None if something can."""
        return self._devices.trouble

    async def start(self) -> None:
        """Say that there is an agent."""
        self._announcer.announce_change(Change(HealthKind.AGENT_STARTED))

    async def settle(self) -> None:
        """Wait for the first look at the devices, but not for long: a driver may hang at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), SETTLE_SECONDS)

    async def stop(self) -> None:
        """Say that the stop is meant, and let go of the driver."""
        await self._devices.close()
        self._announcer.announce_change(Change(HealthKind.AGENT_STOPPED))
        await self._announcer.flush()

    async def run(self) -> None:
        """Take a reading every interval, until cancelled."""
        grid_at, interval, last = _now(), self.interval_seconds, 0
        while True:
            took_at = _now()
            await self._take()
            if (wanted := self._pace.interval_after(took_at)) != interval:
                grid_at, interval, last = took_at, wanted, 0
            slot = next_slot(grid_at, interval, _now(), last)
            # A slot that was missed keeps its number, so that the gap can be counted.
            self._sequence += slot.number - last - 1
            last = slot.number
            if not await self._sleep_until(slot.due_at, interval):
                await self._sleep_until(took_at + self.interval_seconds, 0.0)
                grid_at, interval, last = _now(), self.interval_seconds, 0

    async def snapshot(self, *, use_cache: bool, released: UUID | None = None) -> GpuSampled:
        """A reading begun after this call, or with `use_cache` one of the last 5 s.

        Raises RefusedError (unavailable) while the source does not answer.
        """
        if released is not None:
            self._release(released)
        elif use_cache and self._newest is not None and self._may_answer_from_cache:
            taken_at, sample = self._newest
            if _now() - taken_at <= CACHE_SECONDS:
                return sample
        fresh = await self._take() if self._devices.is_open else None
        if fresh is None:
            raise RefusedError(
                ErrorCode.UNAVAILABLE, f"the GPUs cannot be read: {self._devices.trouble}"
            )
        return fresh

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Cap a device, None sets its default; the limit before. Raises RefusedError."""
        async with self._one_call:
            return await self._devices.set_power_limit(uuid, watts)

    def burst(self, command: SetBurst) -> None:
        """Sample faster for a while. Raises RefusedError when too many asked for that."""
        now = _now()
        until = now + command.duration_seconds
        self._pace.wish(command.command_id, command.interval_seconds, until, now)
        self._hurried.set()

    def start_monitoring(self, query: StartMonitoring) -> MonitoringView:
        """Watch until stopped, or go on. Raises RefusedError when too many run."""
        now = _now()
        session = self._sessions.start(query, now, self._announcer.clock.now())
        if session.is_running:
            interval, key = session.asked.interval_seconds, session.asked.monitoring_id
            # Sessions are bounded themselves: bursts must not keep one from its interval.
            most = MOST_WISHES + MOST_RUNNING
            self._pace.wish(key, interval, session.ends, now, most=most)
            self._may_answer_from_cache = False
            self._hurried.set()
        return session.view(now)

    def stop_monitoring(self, monitoring_id: UUID) -> MonitoringView:
        """End it, and tell what was seen. Raises RefusedError (not_found)."""
        session = self._sessions.stop(monitoring_id, _now())
        self._pace.withdraw(monitoring_id)
        self._may_answer_from_cache = False
        return session.view(_now())

    async def repeat_inventory(self) -> None:
        """Tell the inventory again: whoever kept it has lost it."""
        self._devices.tell_inventory()

    async def _take(self) -> GpuSampled | None:
        """Read under the next number and publish; None if the source does not answer."""
        async with self._one_call:
            self._sequence += 1
            reading = await self._devices.read()
            self._looked.set()
            now = _now()
            self._sessions.advance(now)
            if reading is None:
                return None
            sample = self._sample(reading, now)
            self._newest, self._may_answer_from_cache = (now, sample), True
            self._sessions.observe(sample, now)
            self._figures.samples += 1
            if sample.source is not Source.NONE:
                await self._outlet.publish_sample(sample)
            return sample

    def _sample(self, reading: Reading, now: float) -> GpuSampled:
        return GpuSampled(
            node_id=self._announcer.node_id,
            boot_id=self._announcer.boot_id,
            sequence=self._sequence,
            observed_at=self._announcer.clock.now(),
            interval_seconds=self._pace.interval_after(now),
            source=self._source(),
            gpus=reading.gpus,
        )

    async def _sleep_until(self, due_at: float, interval: float) -> bool:
        """Whether the time was slept through; not if a shorter interval is wanted meanwhile."""
        while (left := due_at - _now()) > 0:
            self._hurried.clear()
            try:
                async with asyncio.timeout(left):
                    await self._hurried.wait()
            except TimeoutError:
                self._figures.count_lag(_now() - due_at)
                return True
            if self.interval_seconds < interval:
                return False
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
