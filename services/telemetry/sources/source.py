"""What every source of GPU readings is: its methods, results and errors."""

from typing import Protocol, runtime_checkable

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.telemetry.readings import DeviceFacts, GpuLink, GpuReading, Source
from services.telemetry.domain.faults import Fault
from shared.errors import RefusedError, StewardError


class SourceAbsentError(StewardError):
    """This host has nothing that this source could read: no library, no program, no device."""


class SourceFailedError(StewardError):
    """A driver is there and does not work."""


class ProbeHungError(SourceFailedError):
    """The driver did not answer within the deadline."""


class Inventory(Struct, frozen=True, kw_only=True):
    """The devices that are there now, ordered by index; the agent adds their health.

    `links` names each pair of whole GPUs once, as far as the source knows how they are connected.
    `labels` are what it says of the node.
    """

    devices: tuple[DeviceFacts, ...] = ()
    links: tuple[GpuLink, ...] = ()
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    labels: dict[str, str] = {}


class NodeReading(Struct, frozen=True, kw_only=True):
    """The GPUs that answered, ordered by index. `lost` names devices that did not, and why.

    `hung` names devices whose driver call did not return in time, and why, while the others
    answered. `faults` happened since the reading before, each reported once; growth of counters is
    not among them, it shows in the readings (`domain.faults.CounterWatch`).
    """

    gpus: tuple[GpuReading, ...] = ()
    lost: dict[str, str] = {}
    hung: dict[str, str] = {}
    faults: tuple[Fault, ...] = ()


class GpuSource(Protocol):
    """Reads the GPUs of this host.

    Every method but `close` raises SourceFailedError, or ProbeHungError after its deadline; what
    follows then is `close`, and a new source. One call at a time.
    """

    @property
    def source(self) -> Source:
        """The origin that samples name."""
        ...

    async def open(self) -> None:
        """Raises SourceAbsentError where there is nothing to read."""

    async def inventory(self) -> Inventory:
        """Enumerate the devices anew."""
        ...

    async def read(self) -> NodeReading:
        """Take one fresh reading. A field that cannot be read is None and takes nothing else with
        it.
        """
        ...

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Cap a device's power; None sets its default. Returns the limit that was set before.

        Raises RefusedError: not_found for an unknown device, bad_request with the device's limits
        in `details` (`minimum_w`, `maximum_w`), forbidden without the privilege, unsupported where
        the source or the device has no such limit.
        """
        ...

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        """Lock a device's SM clock; None has the device set it itself again.

        Raises RefusedError as `set_power_limit` does, the limits in MHz (`minimum_mhz`,
        `maximum_mhz`). What was locked before no driver tells.
        """
        ...

    async def close(self) -> None:
        """Release everything at once, even when the driver hangs."""


@runtime_checkable
class MigDriver(Protocol):
    """A source that divides GPUs in MIG mode; what it fails with is as in `GpuSource`.

    An instance is known by the first of its memory slices. What is as wanted already stays.
    Raises RefusedError: not_found for an unknown device or profile, conflict for an instance that
    is in use or has no room, forbidden without the privilege.
    """

    async def make_mig(self, uuid: str, profile: str, start: int) -> None:
        """Make an instance with one compute instance of all its slices."""

    async def remove_mig(self, uuid: str, start: int) -> None:
        """Remove the instance, if there is one."""


def no_power_limit(source: Source) -> RefusedError:
    """The error of a source that cannot set power limits."""
    return RefusedError(ErrorCode.UNSUPPORTED, f"the source {source} cannot set power limits")


def no_sm_clock(source: Source) -> RefusedError:
    """The error of a source that cannot lock clocks."""
    return RefusedError(ErrorCode.UNSUPPORTED, f"the source {source} cannot lock clocks")
