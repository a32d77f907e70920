"""NVML through a child process, so that a driver that hangs is a state and not the agent's end."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.telemetry import HealthAction, HealthKind, Source
from services.telemetry.domain.faults import Fault
from services.telemetry.domain.xid import Origin, XidLog, xid_fault
from services.telemetry.kernel_log import KERNEL_LOG, KernelLog
from services.telemetry.nvml_probe import Probe
from services.telemetry.ports import (
    Inventory,
    ProbeHungError,
    Reading,
    SourceAbsentError,
    SourceFailedError,
)
from services.telemetry.probe_protocol import (
    Cap,
    Capped,
    CapRefused,
    InventoryTaken,
    ReadingTaken,
    TakeInventory,
)
from shared.errors import RefusedError
from shared.logging import log

FIRST_TRIAL_SECONDS: Final = 5.0
MAX_TRIAL_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Apart:
    """A GPU that is left out, as a call for it took the whole child along; tried by itself."""

    uuids: tuple[str, ...]
    since: float
    pause: float
    try_at: float


class NvmlSource:
    """One child, started by `open`. After an error it is of no use: close it, open another.

    A GPU whose calls hang is left out while they do: by the child, which goes on in another thread,
    or, if it is stuck as a whole, by a new child that is told to leave that GPU alone. Then a child
    of the GPU's own tries again, every time after a longer pause, until it answers.
    """

    source: Final = Source.NVML

    def __init__(
        self,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float,
        environ: Mapping[str, str] | None = None,
        kernel_log: str = KERNEL_LOG,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._open_deadline_seconds = open_deadline_seconds
        self._environ = dict(os.environ if environ is None else environ)
        self._probe: Probe | None = None
        self._kernel_log = KernelLog(kernel_log)
        self._xids = XidLog()
        self._apart: dict[int, _Apart] = {}
        self._answering: set[int] = set()
        self._trial: asyncio.Task[None] | None = None
        self._bus_ids: dict[str, str] = {}

    @property
    def child_pid(self) -> int | None:
        """The process that talks to NVML now."""
        return None if self._probe is None else self._probe.pid

    async def open(self) -> None:
        """Start the child and initialise NVML there."""
        self._kernel_log.open()
        await self._start()

    async def inventory(self) -> Inventory:
        """Enumerate; bounded by the longer deadline, as it may initialise NVML anew."""
        inventory = (await self._inventory()).inventory
        for facts in inventory.devices:
            if facts.pci_bus_id is not None and facts.parent_uuid is None:
                self._bus_ids[facts.uuid] = facts.pci_bus_id
        return inventory

    async def read(self) -> Reading:
        """Raises ProbeHungError after the deadline, if more than a GPU is hanging."""
        if self._answering:
            self._apart = {
                index: apart for index, apart in self._apart.items() if index not in self._answering
            }
            self._answering.clear()
            await self._inventory()
        try:
            taken = await self._opened.read()
        except ProbeHungError as error:
            await self._set_apart(error)
            taken = await self._opened.read()
        if taken.hung and not taken.gpus:
            raise ProbeHungError(f"no GPU answers: {next(iter(taken.hung.values()))}")
        self._start_trial()
        return self._reading(taken)

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
        trial, self._trial = self._trial, None
        self._kernel_log.close()
        if trial is not None:
            trial.cancel()
            await asyncio.wait({trial})
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

    async def _start(self) -> None:
        self._probe = self._new_probe()
        await self._probe.start()

    async def _inventory(self) -> InventoryTaken:
        request = TakeInventory(skip=tuple(self._apart))
        try:
            return await self._opened.inventory(request)
        except ProbeHungError as error:
            return await self._set_apart(error)

    async def _set_apart(self, error: ProbeHungError) -> InventoryTaken:
        """Go on in a new child without the GPU that the old one got stuck in first.

        Raises the error where no GPU is to blame, or where the others hang as well.
        """
        culprit = next((stuck for stuck in self._opened.stuck if stuck.index >= 0), None)
        if culprit is None or culprit.index in self._apart:
            raise error
        log.warning("gpu_set_apart", index=culprit.index, devices=culprit.uuids)
        now = asyncio.get_running_loop().time()
        self._apart[culprit.index] = _Apart(
            culprit.uuids, now, FIRST_TRIAL_SECONDS, now + FIRST_TRIAL_SECONDS
        )
        await self._opened.close()
        await self._start()
        return await self._opened.inventory(TakeInventory(skip=tuple(self._apart)))

    def _start_trial(self) -> None:
        """Try one GPU that is apart, if it is time to and none is being tried."""
        if self._trial is not None and not self._trial.done():
            return
        now = asyncio.get_running_loop().time()
        due = [index for index, apart in self._apart.items() if now >= apart.try_at]
        if due:
            self._trial = asyncio.create_task(self._try(due[0]))

    async def _try(self, index: int) -> None:
        apart = self._apart[index]
        apart.pause = min(2 * apart.pause, MAX_TRIAL_SECONDS)
        probe = self._new_probe()
        try:
            await probe.start()
            found = await probe.inventory(TakeInventory(only=index))
            if found.inventory.devices and not (await probe.read()).hung:
                self._answering.add(index)
        except (SourceAbsentError, SourceFailedError) as error:
            log.info("gpu_still_apart", index=index, reason=str(error))
        finally:
            apart.try_at = asyncio.get_running_loop().time() + apart.pause
            await probe.close()

    def _reading(self, taken: ReadingTaken) -> Reading:
        hung = taken.hung
        if self._apart:
            now = asyncio.get_running_loop().time()
            hung = hung | {
                uuid: f"a driver call took the probe along {now - apart.since:.0f} s ago"
                for apart in self._apart.values()
                for uuid in apart.uuids
            }
        return Reading(
            gpus=taken.gpus, lost=taken.lost, hung=hung, faults=tuple(self._faults(taken))
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
        told += [
            Fault(
                device_uuid=uuid,
                change=HealthKind.MIG_CHANGED,
                action=HealthAction.IGNORE,
                action_source="somebody partitioned the GPU",
                detail=detail,
            )
            for uuid, detail in taken.mig_changed.items()
        ]
        return told
