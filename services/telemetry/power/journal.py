"""Power limits that were set and must be restored, in a file that outlives the agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from services.telemetry.journal_file import replace_journal
from shared.logging import log


class PowerCap(Struct, frozen=True, kw_only=True):
    """A device's limit while it is capped, and before; None stands for the device's default."""

    device_uuid: str
    watts: float
    original_w: float | None
    reservation_id: UUID | None = None


_decoder: Final = msgspec.json.Decoder(tuple[PowerCap, ...])


class PowerJournal:
    """Written and on disk before the driver is called."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, PowerCap]:
        """The caps that an agent left which was killed."""
        try:
            caps = _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.error("power_journal_unreadable", path=str(self._path), error=str(error))
            return {}
        return {cap.device_uuid: cap for cap in caps}

    async def save(self, caps: Mapping[str, PowerCap]) -> None:
        """Replace the file. Raises OSError."""
        await replace_journal(self._path, msgspec.json.encode(tuple(caps.values())))
