"""The source of a host without GPUs."""

from typing import Final

from schemas.telemetry import Source
from services.telemetry.ports import Inventory, Reading


class NoSource:
    """Reports no devices, which is a normal state."""

    source: Final = Source.NONE

    async def open(self) -> None:
        """Always there."""

    async def inventory(self) -> Inventory:
        """Empty."""
        return Inventory()

    async def read(self) -> Reading:
        """Empty."""
        return Reading()

    async def close(self) -> None:
        """Nothing to give up."""
