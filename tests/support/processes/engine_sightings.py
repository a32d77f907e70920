"""Which engines ran when, on which devices: by /proc, past every service that could tell."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.labels import INSTALLATION_VARIABLE, RESERVATION_VARIABLE

LOOK_SECONDS: Final = 0.2
YOUNG_SECONDS: Final = 5.0  # may not have executed its program yet, whose environment tells
ENDED: Final = ("Z", "X")  # its parent has yet to ask how it ended: it holds nothing any more
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Sighting:
    """One process on reserved devices; times since the host's start, in seconds."""

    reservation_id: str
    devices: tuple[str, ...]
    started_at: float
    last_seen_at: float


class EngineWatch:
    """Looks until it is cancelled. The kernel itself says when a process started."""

    def __init__(self, installation_id: str) -> None:
        self._mark = f"{INSTALLATION_VARIABLE}={installation_id}"
        self._seen: dict[tuple[int, float], Sighting | None] = {}

    @property
    def sightings(self) -> list[Sighting]:
        return [each for each in self._seen.values() if each is not None]

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> int:
        """How many run now."""
        running = 0
        for name in os.listdir("/proc"):  # noqa: PTH208  # five times a second
            if name.isdigit() and (seen := self._look_at(int(name))) is not None:
                seen.last_seen_at = time.clock_gettime(time.CLOCK_BOOTTIME)
                running += 1
        return running

    def _look_at(self, pid: int) -> Sighting | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if stat[0] in ENDED:
                return None
            at = int(stat[19]) / TICKS
            if (pid, at) in self._seen:
                return self._seen[pid, at]
            variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
        except (OSError, IndexError):
            return None
        found = None
        if self._mark in variables:
            values = dict(each.partition("=")[::2] for each in variables)
            if reservation_id := values.get(RESERVATION_VARIABLE):
                devices = tuple(values.get("CUDA_VISIBLE_DEVICES", "").split(","))
                found = Sighting(reservation_id, devices, at, at)
        if found or time.clock_gettime(time.CLOCK_BOOTTIME) - at > YOUNG_SECONDS:
            self._seen[pid, at] = found
        return found


def overlaps(sightings: Iterable[Sighting]) -> list[tuple[Sighting, Sighting]]:
    """Two reservations on one device at one time."""
    by_device: dict[str, list[Sighting]] = defaultdict(list)
    for each in sightings:
        for device in each.devices:
            by_device[device].append(each)
    return [
        (one, other)
        for on_device in by_device.values()
        for number, one in enumerate(on_device)
        for other in on_device[number + 1 :]
        if one.reservation_id != other.reservation_id
        and one.started_at < other.last_seen_at
        and other.started_at < one.last_seen_at
    ]
