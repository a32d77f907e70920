"""The agent of one node samples its GPUs on a schedule and answers queries about the samples."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from schemas.base import FRESH_INTERVALS
from schemas.errors import ErrorCode
from schemas.telemetry.monitoring import MonitoringView, StartMonitoring
from schemas.telemetry.readings import GpuReading, GpuSampled, HealthKind, SetBurst, Source
from services.telemetry.counters import Counters
from services.telemetry.device_monitor import DeviceMonitor
from services.telemetry.domain.health import Change
from services.telemetry.domain.monitoring_sessions import MAX_RUNNING, MonitoringSessions
from services.telemetry.domain.sampling_rate import MAX_RATE_REQUESTS, SamplingRate
from services.telemetry.domain.tick_schedule import TickGrid
from services.telemetry.event_publisher import EventPublisher, TelemetrySink
from services.telemetry.sources.source import NodeReading
from shared.errors import RefusedError
from shared.waiting import wait_for

CACHE_SECONDS: Final = 5.0
READY_SECONDS: Final = 5.0

Readings = tuple[GpuReading, ...]


class Agent:
    """Numbers the samples, and has one reading or change of `devices` run at a time."""

    def __init__(
        self,
        devices: DeviceMonitor,
        publisher: EventPublisher,
        sink: TelemetrySink,
        counters: Counters,
        *,
        interval_seconds: float,
        on_released: Callable[[UUID], None],
        with_pods: Callable[[Readings], Readings] = lambda gpus: gpus,
    ) -> None:
        self.devices = devices
        self.publisher = publisher
        self._sink = sink
        self._counters = counters
        self._on_released = on_released
        self._with_pods = with_pods
        self._rate = SamplingRate(interval_seconds)
        self._sessions = MonitoringSessions()
        self._one_call = asyncio.Lock()
        self._first_read = asyncio.Event()
        self._rate_requested = asyncio.Event()
        self._sequence = 0
        self._newest: tuple[float, GpuSampled] | None = None
        self._cache_is_valid = False

    @property
    def newest(self) -> GpuSampled | None:
        """The newest sample, however old."""
        return None if self._newest is None else self._newest[1]

    @property
    def fresh(self) -> GpuSampled | None:
        """The newest sample; None if older than three configured intervals, or if reads fail."""
        if self._newest is None or self.devices.failure is not None:
            return None
        taken_at, sample = self._newest
        limit_seconds = FRESH_INTERVALS * self._rate.configured_seconds
        return sample if _now() - taken_at <= limit_seconds else None

    @property
    def sequence(self) -> int:
        """The number of the newest tick."""
        return self._sequence

    @property
    def current_interval_seconds(self) -> float:
        """The sampling interval at present: the configured one, or a shorter one requested."""
        return self._rate.interval_after(_now())

    def start(self) -> None:
        """Report that the agent runs."""
        self.publisher.queue_change(Change(HealthKind.AGENT_STARTED))

    async def wait_ready(self) -> None:
        """Wait for the first reading, 5 s at most: a driver may hang from the start."""
        await wait_for(self._first_read, READY_SECONDS)

    async def stop(self) -> None:
        """Close the driver, and report that the stop is intended."""
        # Without the lock: a call that hangs may hold it.
        await self.devices.close()
        self.publisher.queue_change(Change(HealthKind.AGENT_STOPPED))
        await self.publisher.flush()

    async def run(self) -> None:
        """Sample every interval, until cancelled."""
        grid = TickGrid(_now(), self.current_interval_seconds)
        while True:
            began_at = _now()
            await self._sample(began_at)
            if (interval := self._rate.interval_after(began_at)) != grid.interval_seconds:
                grid = TickGrid(began_at, interval)
            due_at, missed = grid.next_slot(_now())
            # Missed slots keep their numbers, so that the gap can be counted.
            self._sequence += missed
            if not await self._sleep_until(due_at, grid.interval_seconds):
                # The shorter interval counts from the latest tick; nothing cuts this wait (0.0).
                await self._sleep_until(began_at + self.current_interval_seconds, 0.0)
                grid = TickGrid(_now(), self.current_interval_seconds)

    async def snapshot(self, *, use_cache: bool, released: UUID | None = None) -> GpuSampled:
        """Read the GPUs now, or with `use_cache` return a sample of the last 5 s.

        `released` forces a read: an earlier sample may show load of that reservation.
        Raises RefusedError (unavailable) while the source does not answer.
        """
        if released is not None:
            self._on_released(released)
        elif use_cache and self._newest is not None and self._cache_is_valid:
            taken_at, sample = self._newest
            if _now() - taken_at <= CACHE_SECONDS:
                return sample
        new_sample = await self._sample() if self.devices.is_open else None
        if new_sample is None:
            raise RefusedError(
                ErrorCode.UNAVAILABLE, f"the GPUs cannot be read: {self.devices.failure}"
            )
        return new_sample

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Cap a device, with None at its default; return the limit before. Raises RefusedError."""
        async with self._one_call:
            return await self.devices.set_power_limit(uuid, watts)

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        """Lock a device's SM clock, with None have it set its own. Raises RefusedError."""
        async with self._one_call:
            await self.devices.set_sm_clock(uuid, mhz)

    async def change_devices(self, change: Callable[[], Awaitable[None]]) -> None:
        """Have `change` make or remove devices; an inventory before and after it reports them.

        Raises RefusedError (unavailable) while the source does not answer.
        """
        async with self._one_call:
            await self.devices.repeat_enumeration()
            try:
                await change()
            finally:
                await self.devices.repeat_enumeration()

    def burst(self, command: SetBurst) -> None:
        """Sample faster for a while. Raises RefusedError (conflict) at too many bursts."""
        now = _now()
        until = now + command.duration_seconds
        self._rate.request(command.command_id, command.interval_seconds, until, now)
        self._rate_requested.set()

    def start_monitoring(self, query: StartMonitoring) -> MonitoringView:
        """Start the session if none has its id. Raises RefusedError (conflict) at too many."""
        now = _now()
        session = self._sessions.start(query, now, self.publisher.clock.now())
        if session.is_running:
            interval, key = session.query.interval_seconds, session.query.monitoring_id
            # Sessions have a bound of their own: bursts must not refuse one its interval.
            limit = MAX_RATE_REQUESTS + MAX_RUNNING
            self._rate.request(key, interval, session.ends, now, limit=limit)
            self._cache_is_valid = False
            self._rate_requested.set()
        return session.view(now)

    def stop_monitoring(self, monitoring_id: UUID) -> MonitoringView:
        """End a session and return its result. Raises RefusedError (not_found)."""
        session = self._sessions.stop(monitoring_id, _now())
        self._rate.withdraw(monitoring_id)
        self._cache_is_valid = False
        return session.view(_now())

    async def _sample(self, tick_at: float | None = None) -> GpuSampled | None:
        """Read and publish the next sample; None if the source does not answer.

        The interval to the next counts from `tick_at`, as in `run`, however long the reading takes;
        without a tick from the end of the reading.
        """
        async with self._one_call:
            self._sequence += 1
            reading = await self.devices.read()
            self._first_read.set()
            now = _now()
            self._sessions.advance(now)
            if reading is None:
                return None
            sample = self._number(reading, now if tick_at is None else tick_at)
            self._newest, self._cache_is_valid = (now, sample), True
            self._sessions.observe(sample, now)
            self._counters.samples += 1
            if sample.source is not Source.NONE:
                await self._sink.publish_live(sample)
            return sample

    def _number(self, reading: NodeReading, interval_from: float) -> GpuSampled:
        return GpuSampled(
            node_id=self.publisher.node_id,
            boot_id=self.publisher.boot_id,
            sequence=self._sequence,
            observed_at=self.publisher.clock.now(),
            interval_seconds=self._rate.interval_after(interval_from),
            source=self.devices.source,
            gpus=self._with_pods(reading.gpus),
        )

    async def _sleep_until(self, due_at: float, interval: float) -> bool:
        """Return False as soon as the current interval gets shorter than `interval`, else True."""
        while (seconds_left := due_at - _now()) > 0:
            self._rate_requested.clear()
            if not await wait_for(self._rate_requested, seconds_left):
                self._counters.count_lag(_now() - due_at)
                return True
            if self.current_interval_seconds < interval:
                return False
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
