"""Reports when the disk of the data directory is full, and when it has room again."""

import asyncio
from pathlib import Path
from typing import Final

from schemas.telemetry.readings import HealthKind
from services.telemetry.domain.health import Change
from services.telemetry.event_publisher import EventPublisher
from shared.disk import is_full, room_at
from shared.logging import log

CHECK_SECONDS: Final = 1.0


async def watch_disk(data_dir: Path, publisher: EventPublisher) -> None:
    """Queue an event of each change, until cancelled; it waits for the bus in memory."""
    was_full = False
    while True:
        if (full := is_full(data_dir)) != was_full:
            was_full = full
            kind = HealthKind.DISK_FULL if full else HealthKind.DISK_HAS_ROOM
            room = str(room_at(data_dir))
            log.warning(kind.value, room=room)
            publisher.queue_change(Change(kind, detail=room))
        await asyncio.sleep(CHECK_SECONDS)
