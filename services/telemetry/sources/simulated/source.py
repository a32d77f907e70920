"""A simulated fleet: devices are busy while they are held, or as a recording has them."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from schemas.telemetry.readings import Source
from services.telemetry.domain.holdings import Holdings
from services.telemetry.sources.simulated.simulation import Simulation
from services.telemetry.sources.source import (
    Inventory,
    NodeReading,
    ProbeHungError,
    SourceFailedError,
)

TIME_STEP_SECONDS: Final = 0.1


class FleetClock:
    """Seconds since its first call, so that ticks fall on the steps of the fleet's time."""

    def __init__(self) -> None:
        self._started_at: float | None = None

    def __call__(self) -> float:
        now = time.monotonic()
        if self._started_at is None:
            self._started_at = now
        return now - self._started_at


class SimulatedSource:
    """Time is the fleet's own, in steps of a tenth of a second or an interval if that is shorter.

    So a seed gives the same readings tick by tick, however late a tick comes; a source that
    replaces a broken one goes on where that was. The ReservationTracker writes `holdings`.
    """

    source: Final = Source.SIMULATED

    def __init__(
        self,
        simulation: Simulation,
        holdings: Holdings,
        clock: Callable[[], float],
        *,
        interval_seconds: float,
        deadline_seconds: float,
    ) -> None:
        self._simulation = simulation
        self._holdings = holdings
        self._clock = clock
        self._step_seconds = min(TIME_STEP_SECONDS, interval_seconds)
        self._deadline_seconds = deadline_seconds

    async def open(self) -> None:
        """Fails or hangs where the script says so."""
        await self._now()

    async def inventory(self) -> Inventory:
        """The fleet, every device marked simulated."""
        fleet, devices = self._simulation.fleet, self._simulation.devices(await self._now())
        present = {facts.uuid for facts in devices}
        return Inventory(
            devices=devices,
            links=tuple(
                link for link in fleet.links if {link.first_uuid, link.second_uuid} <= present
            ),
            driver_version=fleet.driver_version,
            cuda_driver_version=fleet.cuda_driver_version,
            labels=fleet.labels,
        )

    async def read(self) -> NodeReading:
        reading = self._simulation.read(await self._now(), self._holdings.devices)
        return NodeReading(
            gpus=reading.gpus, lost=reading.lost, hung=reading.hung, faults=reading.faults
        )

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        return self._simulation.set_power_limit(uuid, watts, await self._now())

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        self._simulation.set_sm_clock(uuid, mhz, await self._now())

    async def make_mig(self, uuid: str, profile: str, start: int) -> None:
        await self._now()
        self._simulation.make_mig(uuid, profile, start)

    async def remove_mig(self, uuid: str, start: int) -> None:
        await self._now()
        self._simulation.remove_mig(uuid, start)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _now(self) -> float:
        """The fleet's time; hangs and fails as scripted."""
        seconds = round(self._clock() / self._step_seconds) * self._step_seconds
        if self._simulation.hangs(seconds):
            await asyncio.sleep(self._deadline_seconds)
            raise ProbeHungError(
                f"expected the simulated driver to answer within {self._deadline_seconds:g} s, "
                "it hangs as scripted"
            )
        if self._simulation.fails(seconds):
            raise SourceFailedError("the simulated driver fails as scripted")
        return seconds
