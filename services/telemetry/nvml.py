"""NVML through a child process, so that a driver that hangs is a state and not the agent's end."""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from schemas.telemetry import Source
from services.telemetry.domain.faults import Fault
from services.telemetry.domain.xid import Origin, XidLog, xid_fault
from services.telemetry.kernel_log import KERNEL_LOG, KernelLog
from services.telemetry.nvml_probe import Probe
from services.telemetry.nvml_quarantine import Quarantine
from services.telemetry.ports import (
    Inventory,
    ProbeHungError,
    Reading,
    SourceFailedError,
)
from services.telemetry.probe_protocol import (
    Cap,
    Capped,
    CapRefused,
    ReadingTaken,
    TakeInventory,
)
from shared.errors import RefusedError


class NvmlSource:
    """One child, started by `open`. After an error it is of no use: close it, open another.

    A GPU whose calls hang is left out while they do: by the child, which goes on in another thread,
    or, if it hangs as a whole, by the next source, which is told of it by the `quarantine`.
    """

    source: Final = Source.NVML

    def __init__(
        self,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float,
        environ: Mapping[str, str] | None = None,
        kernel_log: str = KERNEL_LOG,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._open_deadline_seconds = open_deadline_seconds
        self._environ = dict(os.environ if environ is None else environ)
        self._probe: Probe | None = None
        self._kernel_log = KernelLog(kernel_log)
        self._xids = XidLog()
        self._quarantine = quarantine or Quarantine()
        self._bus_ids: dict[str, str] = {}

    @property
    def child_pid(self) -> int | None:
        """The process that talks to NVML now."""
        return None if self._probe is None else self._probe.pid

    async def open(self) -> None:
        """Start the child and initialise NVML there."""
        self._kernel_log.open()
        self._probe = self._new_probe()
        await self._probe.start()

    async def inventory(self) -> Inventory:
        """Enumerate; bounded by the longer deadline, as it may initialise NVML anew."""
        try:
            taken = await self._opened.inventory(TakeInventory(skip=self._quarantine.indices))
        except ProbeHungError:
            self._quarantine.blame(self._opened.stuck)
            raise
        for facts in taken.inventory.devices:
            if facts.pci_bus_id is not None and facts.parent_uuid is None:
                self._bus_ids[facts.uuid] = facts.pci_bus_id
        return taken.inventory

    async def read(self) -> Reading:
        """Raises ProbeHungError after the deadline, and when no GPU answers."""
        if self._quarantine.released():
            await self.inventory()
        try:
            taken = _answered(await self._opened.read())
        except ProbeHungError:
            self._quarantine.blame(self._opened.stuck)
            raise
        self._quarantine.start_trial(self._new_probe)
        return Reading(
            gpus=taken.gpus,
            lost=taken.lost,
            hung=taken.hung | self._quarantine.hung(),
            faults=tuple(self._faults(taken)),
        )

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Bounded like a reading."""
        match await self._opened.cap(Cap(uuid, watts)):
            case Capped(watts_before=before):
                return before
            case CapRefused(code, detail, minimum_w, maximum_w):
                known = {"minimum_w": minimum_w, "maximum_w": maximum_w}
                raise RefusedError(
                    code,
                    detail,
                    details={name: value for name, value in known.items() if value is not None},
                )

    async def close(self) -> None:
        """Kill the child, and leave it to be reaped if it does not die at once."""
        probe, self._probe = self._probe, None
        self._kernel_log.close()
        await self._quarantine.stop_trial()
        if probe is not None:
            await probe.close()

    @property
    def _opened(self) -> Probe:
        if self._probe is None:
            raise SourceFailedError("the probe is closed")
        return self._probe

    def _new_probe(self) -> Probe:
        return Probe(
            deadline_seconds=self._deadline_seconds,
            open_deadline_seconds=self._open_deadline_seconds,
            environ=self._environ,
        )

    def _faults(self, taken: ReadingTaken) -> list[Fault]:
        """What happened since the last reading, whoever told of it, each once."""
        now = asyncio.get_running_loop().time()
        told = [
            xid_fault(uuid, xid)
            for uuid, xid in taken.xids
            if self._xids.is_new(uuid, xid, Origin.DRIVER, now)
        ]
        for record in self._kernel_log.read():
            uuid = record.device_among(self._bus_ids)
            if uuid is not None and self._xids.is_new(uuid, record.xid, Origin.KERNEL_LOG, now):
                told.append(xid_fault(uuid, record.xid, record.text))
        return told


def _answered(taken: ReadingTaken) -> ReadingTaken:
    """Raises ProbeHungError if every GPU hangs, which a new child may be rid of."""
    if taken.hung and not taken.gpus:
        raise ProbeHungError(f"no GPU answers: {next(iter(taken.hung.values()))}")
    return taken
