"""Faults that a simulated fleet shows at scripted times."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import Count, DeviceUuid, PositiveSeconds
from schemas.telemetry.readings import GpuReading, HealthAction

NotNegative = Annotated[float, Meta(ge=0)]
NAMING: Final = frozenset({"uuid", "index"})
READABLE: Final = frozenset(GpuReading.__struct_fields__) - NAMING


class FaultKind(StrEnum):
    """What happens to a device, or to the driver where no device is named."""

    XID = "xid"
    ECC_STORM = "ecc_storm"
    HANG = "hang"
    FAIL = "fail"
    VANISH = "vanish"
    MIG_CHANGE = "mig_change"
    NOT_AVAILABLE = "not_available"


class ScriptedFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[fault]]` of the file; seconds count from the agent's start.

    `device` is an index or a uuid; without one a hang, a failure and `[N/A]` concern all of them.
    Without `duration_seconds` it stays. It comes again every `repeat_every_seconds`, up to
    `jitter_seconds` late: how late is the seed's. `action` is what to do about an XID, else what
    the catalogue of XIDs says. A `mig_change` divides a device into `instances` of `profile`.
    """

    kind: FaultKind
    at_seconds: NotNegative = 0.0
    duration_seconds: PositiveSeconds | None = None
    repeat_every_seconds: PositiveSeconds | None = None
    jitter_seconds: NotNegative = 0.0
    device: Count | DeviceUuid | None = None
    xid: Annotated[int, Meta(ge=1, le=999)] | None = None
    action: HealthAction | None = None
    corrected_per_second: NotNegative = 50.0
    uncorrected: Count = 0
    fields: tuple[str, ...] = ()
    profile: Annotated[str, Meta(pattern=r"^[1-7]g\.\d+gb$")] = "1g.10gb"
    instances: Annotated[int, Meta(ge=1, le=7)] = 7


_WITHOUT_DEVICE: Final = frozenset({FaultKind.HANG, FaultKind.FAIL, FaultKind.NOT_AVAILABLE})


def invalid_reason(fault: ScriptedFault, devices: Sequence[str]) -> str | None:
    """Say why a fault does not fit a fleet of these uuids in their order; None if it does."""
    duration, repeat = fault.duration_seconds or 0.0, fault.repeat_every_seconds
    if fault.device is None and fault.kind not in _WITHOUT_DEVICE:
        return f"expected a device for {fault.kind}"
    if fault.device is not None and device_of(fault, devices) is None:
        return f"expected one of {len(devices)} devices, found {fault.device!r}"
    if fault.kind is FaultKind.FAIL and fault.device is not None:
        return "expected no device: the driver fails as a whole"
    if fault.kind is FaultKind.XID and fault.xid is None:
        return "expected an xid"
    if fault.kind is FaultKind.NOT_AVAILABLE and not set(fault.fields) <= READABLE:
        return f"expected fields of a reading, found {sorted(set(fault.fields) - READABLE)}"
    if fault.kind is FaultKind.NOT_AVAILABLE and not fault.fields:
        return "expected fields that are not available"
    if repeat is None:
        return None
    if fault.duration_seconds is None and fault.kind is not FaultKind.XID:
        return "expected a duration for what repeats"
    if duration + fault.jitter_seconds > repeat:
        return f"expected to be over within {repeat:g} s, when it comes again"
    return None


def device_of(fault: ScriptedFault, devices: Sequence[str]) -> str | None:
    """The uuid that a fault names."""
    if isinstance(fault.device, int):
        return devices[fault.device] if fault.device < len(devices) else None
    return fault.device if fault.device in devices else None


class FaultSchedule(Struct, frozen=True):
    """When one fault happens. Its `place` in the file seeds its delays."""

    fault: ScriptedFault
    seed: int
    place: int

    def count_beginnings(self, seconds: float) -> int:
        """Number of times it has begun."""
        since = seconds - self.fault.at_seconds
        if since < 0:
            return 0
        repeat = self.fault.repeat_every_seconds
        last = 0 if repeat is None else int(since // repeat)
        return last + (1 if self._starts_at(last) <= seconds else 0)

    def is_on(self, seconds: float) -> bool:
        beginnings = self.count_beginnings(seconds)
        if beginnings == 0:
            return False
        duration = self.fault.duration_seconds
        return duration is None or seconds < self._starts_at(beginnings - 1) + duration

    def seconds_on(self, seconds: float) -> float:
        """Seconds it has lasted, all times together."""
        beginnings = self.count_beginnings(seconds)
        if beginnings == 0:
            return 0.0
        elapsed = seconds - self._starts_at(beginnings - 1)
        duration = self.fault.duration_seconds
        if duration is None:
            return elapsed
        return (beginnings - 1) * duration + min(elapsed, duration)

    def _starts_at(self, time: int) -> float:
        scheduled = self.fault.at_seconds + time * (self.fault.repeat_every_seconds or 0.0)
        if self.fault.jitter_seconds == 0:
            return scheduled
        digest = hashlib.blake2b(f"{self.seed}/{self.place}/{time}".encode(), digest_size=4)
        return scheduled + self.fault.jitter_seconds * int.from_bytes(digest.digest()) / (1 << 32)
