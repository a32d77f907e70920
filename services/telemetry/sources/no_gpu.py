"""The source of a host without GPUs."""

from typing import Final

from schemas.telemetry.readings import Source
from services.telemetry.sources.source import Inventory, NodeReading, no_power_limit, no_sm_clock


class NoSource:
    """Reports no devices, which is a normal state."""

    source: Final = Source.NONE

    async def open(self) -> None:
        """Never absent."""

    async def inventory(self) -> Inventory:
        return Inventory()

    async def read(self) -> NodeReading:
        return NodeReading()

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:  # noqa: ARG002  # as the port has it
        raise no_power_limit(self.source)

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:  # noqa: ARG002  # as the port has it
        raise no_sm_clock(self.source)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
