"""A made-up fleet, whose devices look busy while they are held."""

from typing import Final

from schemas.telemetry import GpuReading, Source
from services.telemetry.domain.fleet import Fleet
from services.telemetry.domain.holdings import Holdings
from services.telemetry.domain.load import DeviceLoad, reading_at, turn
from services.telemetry.ports import Inventory, Reading, no_power_limit


class SimulatedSource:
    """Time here is readings taken, so that a seed gives the same series however slow the host is.

    `holdings` is fed by whoever hears reservation events and only read here.
    """

    source: Final = Source.SIMULATED

    def __init__(self, fleet: Fleet, holdings: Holdings, *, interval_seconds: float) -> None:
        self._fleet = fleet
        self._holdings = holdings
        self._interval_seconds = interval_seconds
        self._tick = 0
        self._loads = {facts.uuid: DeviceLoad() for facts in fleet.devices}
        self._energy_mj = {facts.uuid: 0.0 for facts in fleet.devices}

    async def open(self) -> None:
        """Always there."""

    async def inventory(self) -> Inventory:
        """The fleet, every device marked simulated."""
        return Inventory(
            devices=self._fleet.devices,
            driver_version=self._fleet.driver_version,
            cuda_driver_version=self._fleet.cuda_driver_version,
        )

    async def read(self) -> Reading:
        """The next tick."""
        self._tick += 1
        held = self._holdings.devices
        return Reading(
            gpus=tuple(self._read(place, held) for place in range(len(self._fleet.devices)))
        )

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:  # noqa: ARG002  # as the port has it
        """Not possible here."""
        raise no_power_limit(self.source)

    async def close(self) -> None:
        """Nothing to give up."""

    def _read(self, place: int, held: frozenset[str]) -> GpuReading:
        facts, shape = self._fleet.devices[place], self._fleet.load
        uuid, seconds = facts.uuid, self._tick * self._interval_seconds
        self._loads[uuid] = turn(self._loads[uuid], shape, held=uuid in held, seconds=seconds)
        reading = reading_at(
            facts,
            self._loads[uuid],
            shape,
            seconds=seconds,
            energy_mj=int(self._energy_mj[uuid]),
        )
        self._energy_mj[uuid] += (reading.power_draw_w or 0.0) * 1000 * self._interval_seconds
        return reading
