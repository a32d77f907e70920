"""Faults of devices: those that a source reported, and those that show in growing counters."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from schemas.telemetry.readings import GpuReading, HealthAction, HealthKind

ECC_STORM_PER_SECOND: Final = 10.0
STORM_OVER_SECONDS: Final = 60.0

_REMAP_FAILED: Final = "a row of memory could not be remapped"
_DRIVER: Final = "NVIDIA GPU Memory Error Management"
_DCGM: Final = "DCGM health checks"


class Fault(Struct, frozen=True, kw_only=True):
    """Something that happened once to a device; an event, not a state.

    `action` is what to do about it and `action_source` where that advice comes from.
    """

    device_uuid: str
    change: HealthKind
    action: HealthAction
    action_source: str
    xid: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _LastReading:
    reading: GpuReading
    at_seconds: float
    storm_until: float


class CounterWatch:
    """Finds faults in the counters of successive readings, whatever source took them.

    A counter that is seen for the first time has not grown, and one that shrank was reset. Seconds
    are monotonic.
    """

    def __init__(self, *, storm_per_second: float = ECC_STORM_PER_SECOND) -> None:
        self._storm_per_second = storm_per_second
        self._seen: dict[str, _LastReading] = {}

    def faults(self, readings: Iterable[GpuReading], at_seconds: float) -> list[Fault]:
        """New since the last call, device by device."""
        return [fault for reading in readings for fault in self._of(reading, at_seconds)]

    def _of(self, reading: GpuReading, at_seconds: float) -> list[Fault]:
        seen_before = self._seen.get(reading.uuid)
        previous = None if seen_before is None else seen_before.reading
        faults = _standing_faults(previous, reading)
        storm_until = 0.0 if seen_before is None else seen_before.storm_until
        if seen_before is not None:
            faults += _find_uncorrected(seen_before.reading, reading)
            seconds = max(at_seconds - seen_before.at_seconds, 1.0)
            grown = _growth(seen_before.reading.ecc_corrected, reading.ecc_corrected)
            if grown > self._storm_per_second * seconds:
                if at_seconds >= storm_until:
                    faults.append(_storm(reading.uuid, grown, seconds))
                storm_until = at_seconds + STORM_OVER_SECONDS
        self._seen[reading.uuid] = _LastReading(reading, at_seconds, storm_until)
        return faults


def failing(readings: Iterable[GpuReading]) -> dict[str, str]:
    """The devices whose reading shows that they need repair, each with its reason.

    A fault that happened once is no such state: the scheduler, which acts on it, stores it.
    """
    return {reading.uuid: _REMAP_FAILED for reading in readings if reading.remap_failed}


def _growth(count_before: int | None, count_now: int | None) -> int:
    return 0 if count_before is None or count_now is None else max(0, count_now - count_before)


def _find_uncorrected(previous: GpuReading, reading: GpuReading) -> list[Fault]:
    grown = _growth(previous.ecc_uncorrected, reading.ecc_uncorrected)
    if not grown:
        return []
    return [
        Fault(
            device_uuid=reading.uuid,
            change=HealthKind.ECC_UNCORRECTED,
            action=HealthAction.RESET,
            action_source=f"{_DCGM}, DCGM_FR_VOLATILE_DBE_DETECTED",
            detail=f"{grown} uncorrectable memory errors more, {reading.ecc_uncorrected} in all",
        )
    ]


def _storm(uuid: str, grown: int, seconds: float) -> Fault:
    return Fault(
        device_uuid=uuid,
        change=HealthKind.ECC_STORM,
        action=HealthAction.IGNORE,
        action_source=f"{_DRIVER}: corrected errors need no action; their rate is worth a look",
        detail=f"{grown} corrected memory errors within {seconds:.1f} s",
    )


def _standing_faults(previous: GpuReading | None, reading: GpuReading) -> list[Fault]:
    """Conditions that hold now and did not, or were not known to, before."""
    faults = []
    if reading.remap_pending and not (previous and previous.remap_pending):
        faults.append(
            Fault(
                device_uuid=reading.uuid,
                change=HealthKind.ROW_REMAP_PENDING,
                action=HealthAction.RESET,
                action_source=f"{_DRIVER}, row remapping: it takes effect at the next reset",
                detail="a row of memory waits to be remapped",
            )
        )
    if reading.remap_failed and not (previous and previous.remap_failed):
        faults.append(
            Fault(
                device_uuid=reading.uuid,
                change=HealthKind.ROW_REMAP_FAILED,
                action=HealthAction.DRAIN,
                action_source=f"{_DRIVER}, RMA policy; {_DCGM}, DCGM_FR_ROW_REMAP_FAILURE",
                detail=_REMAP_FAILED,
            )
        )
    return faults
