"""What was set on devices and must be taken back, in a file that outlives the agent."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from services.telemetry.journal_file import replace_journal
from shared.logging import log


class Setting(StrEnum):
    """What is set on a device, by the name of its field in a command."""

    POWER_LIMIT = "power_limit_w"
    SM_CLOCK = "sm_clock_mhz"


class Cap(Struct, frozen=True, kw_only=True):
    """A device's power limit while it is capped, and before; or the clock it is locked to.

    `original_w` None stands for the device's default; of a clock nothing else is known.
    """

    device_uuid: str
    watts: float | None = None
    original_w: float | None = None
    reservation_id: UUID | None = None
    sm_clock_mhz: int | None = None

    @property
    def key(self) -> "CapKey":
        return self.device_uuid, Setting.POWER_LIMIT if self.watts else Setting.SM_CLOCK

    @property
    def value(self) -> float | None:
        return self.watts or self.sm_clock_mhz


CapKey = tuple[str, Setting]


_decoder: Final = msgspec.json.Decoder(tuple[Cap, ...])


class PowerJournal:
    """Written and on disk before the driver is called."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[CapKey, Cap]:
        """The caps that an agent left which was killed."""
        try:
            caps = _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.error("power_journal_unreadable", path=str(self._path), error=str(error))
            return {}
        return {cap.key: cap for cap in caps}

    async def save(self, caps: Mapping[CapKey, Cap]) -> None:
        """Replace the file. Raises OSError."""
        await replace_journal(self._path, msgspec.json.encode(tuple(caps.values())))
