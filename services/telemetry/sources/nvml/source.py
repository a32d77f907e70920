"""NVML through a child process: a driver that hangs is a reported state, not the agent's end.

How agent and child work together is explained in `protocol.py`.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from schemas.telemetry.readings import Source
from services.telemetry.domain.faults import Fault
from services.telemetry.domain.xid import KernelSxid, XidDeduplicator, XidOrigin, xid_fault
from services.telemetry.sources.nvml.hung_gpus import HungGpuIsolation
from services.telemetry.sources.nvml.kernel_log import KERNEL_LOG, KernelLog
from services.telemetry.sources.nvml.probe import Probe
from services.telemetry.sources.nvml.protocol import (
    CapRefused,
    CapSet,
    LockClock,
    MakeMig,
    MigRefused,
    ReadingTaken,
    RemoveMig,
    SetCap,
    TakeInventory,
)
from services.telemetry.sources.source import (
    Inventory,
    NodeReading,
    ProbeHungError,
    SourceFailedError,
)
from shared.errors import RefusedError


class NvmlSource:
    """One child, started by `open`. After an error close it and open another source.

    A GPU whose calls hang is left out: by the child, which goes on in another thread, or, if the
    child hangs as a whole, by the next source, which learns of it from `isolation`.
    """

    source: Final = Source.NVML

    def __init__(
        self,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float,
        environ: Mapping[str, str] | None = None,
        kernel_log: str = KERNEL_LOG,
        isolation: HungGpuIsolation | None = None,
        with_mig_layouts: bool = False,
    ) -> None:
        self._with_mig_layouts = with_mig_layouts
        self._deadline_seconds = deadline_seconds
        self._open_deadline_seconds = open_deadline_seconds
        self._environ = dict(os.environ if environ is None else environ)
        self._probe: Probe | None = None
        self._kernel_log = KernelLog(kernel_log)
        self._xids = XidDeduplicator()
        self._isolation = isolation or HungGpuIsolation()
        self._bus_ids: dict[str, str] = {}

    @property
    def child_pid(self) -> int | None:
        """The process that calls NVML now."""
        return None if self._probe is None else self._probe.pid

    async def open(self) -> None:
        """Starts the child, which initialises NVML."""
        self._kernel_log.open()
        self._probe = self._new_probe()
        await self._probe.start()

    async def inventory(self) -> Inventory:
        """Enumerate; bounded by the longer deadline, as it may initialise NVML anew."""
        try:
            result = await self._opened.inventory(
                TakeInventory(skip=self._isolation.indices, with_mig_layouts=self._with_mig_layouts)
            )
        except ProbeHungError:
            self._isolation.isolate_first(self._opened.stuck)
            raise
        for facts in result.inventory.devices:
            if facts.pci_bus_id is not None and facts.parent_uuid is None:
                self._bus_ids[facts.uuid] = facts.pci_bus_id
        return result.inventory

    async def read(self) -> NodeReading:
        """Raises ProbeHungError after the deadline, and when no GPU answers."""
        if self._isolation.pop_recovered():
            await self.inventory()
        try:
            result = _check_hung(await self._opened.read())
        except ProbeHungError:
            self._isolation.isolate_first(self._opened.stuck)
            raise
        self._isolation.retry_soon(self._new_probe)
        return NodeReading(
            gpus=result.gpus,
            lost=result.lost,
            hung=result.hung | self._isolation.hung(),
            faults=tuple(self._faults(result)),
        )

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Set it within the deadline of a reading."""
        match await self._opened.cap(SetCap(uuid, watts)):
            case CapSet(watts_before=before):
                return before
            case CapRefused(code, detail, details):
                raise RefusedError(code, detail, details=details)

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        """Set it within the deadline of a reading."""
        match await self._opened.lock_clock(LockClock(uuid, mhz)):
            case CapRefused(code, detail, details):
                raise RefusedError(code, detail, details=details)

    async def make_mig(self, uuid: str, profile: str, start: int) -> None:
        await self._change_mig(MakeMig(uuid, profile, start))

    async def remove_mig(self, uuid: str, start: int) -> None:
        await self._change_mig(RemoveMig(uuid, start))

    async def _change_mig(self, request: MakeMig | RemoveMig) -> None:
        match await self._opened.change_mig(request):
            case MigRefused(code, detail):
                raise RefusedError(code, detail)

    async def close(self) -> None:
        """Kill the child; one that does not die at once is reaped later."""
        probe, self._probe = self._probe, None
        self._kernel_log.close()
        await self._isolation.stop_retry()
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

    def _faults(self, result: ReadingTaken) -> list[Fault]:
        """Return what happened since the last reading, each once: driver and kernel both report it.

        The kernel's log comes first: it alone has the text that tells how severe an XID is.
        """
        now = asyncio.get_running_loop().time()
        faults = []
        for record in self._kernel_log.read():
            if isinstance(record, KernelSxid):
                faults += [
                    record.fault(uuid)
                    for uuid in self._bus_ids
                    if self._xids.is_new(uuid, record.sxid, XidOrigin.KERNEL_LOG, now)
                ]
                continue
            device = record.device_among(self._bus_ids)
            if device is not None and self._xids.is_new(device, record.xid, record.origin, now):
                faults.append(xid_fault(device, record.xid, record.text))
        return faults + [
            xid_fault(uuid, xid)
            for uuid, xid in result.xids
            if self._xids.is_new(uuid, xid, XidOrigin.DRIVER, now)
        ]


def _check_hung(result: ReadingTaken) -> ReadingTaken:
    """Raises ProbeHungError if every GPU hangs: a new child may not."""
    if result.hung and not result.gpus:
        raise ProbeHungError(f"no GPU answers: {next(iter(result.hung.values()))}")
    return result
