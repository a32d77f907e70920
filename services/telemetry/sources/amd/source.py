"""AMD's GPUs by amd-smi, or by rocm-smi where that is all there is."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.telemetry.readings import DeviceFacts, GpuLink, GpuProcess, GpuReading, Source
from services.telemetry.host.process_details import with_details
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.amd import amd_smi, rocm_smi, topology
from services.telemetry.sources.command import AdaptiveDeadline, is_installed, run_program
from services.telemetry.sources.source import (
    Inventory,
    NodeReading,
    SourceAbsentError,
    SourceFailedError,
    no_power_limit,
    no_sm_clock,
)
from shared.logging import log
from shared.processes.command import CommandOutput
from shared.waiting import cancel_and_wait

PROCESS_PAUSE_SECONDS: Final = 30.0
_DOCUMENT = re.compile(r"^\s*[\[{]", re.MULTILINE)


class AmdSource:
    """Runs a program for every reading. What a release does not print stays unknown."""

    source: Final = Source.AMD

    def __init__(
        self,
        amd_smi_path: str,
        rocm_smi_path: str,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float = 15.0,
    ) -> None:
        self._amd_smi_path = amd_smi_path
        self._rocm_smi_path = rocm_smi_path
        self._uses_amd_smi = True
        self._deadline = AdaptiveDeadline(deadline_seconds, warm_up_seconds=open_deadline_seconds)
        self._facts: dict[int, DeviceFacts] = {}
        self._limits: dict[int, float] = {}
        self._links: tuple[GpuLink, ...] = ()
        self._linked: Mapping[int, str] = {}
        self._numa_nodes: Mapping[int, int] = {}
        self._driver_version: str | None = None
        self._no_processes_until = 0.0
        self._process_table = ProcessTable()

    async def open(self) -> None:
        """Open the source; absent without either program, or where it works and sees no device."""
        self._uses_amd_smi = is_installed(self._amd_smi_path)
        if not self._uses_amd_smi and not is_installed(self._rocm_smi_path):
            raise SourceAbsentError(
                f"neither {self._amd_smi_path} nor {self._rocm_smi_path} is installed"
            )
        await self._enumerate()
        if not self._facts:
            raise SourceAbsentError("no AMD device")

    async def inventory(self) -> Inventory:
        """The devices that are listed now."""
        await self._enumerate()
        return Inventory(
            devices=tuple(self._facts.values()),
            links=self._links,
            driver_version=self._driver_version,
        )

    async def read(self) -> NodeReading:
        """The devices that answer now."""
        if not self._uses_amd_smi:
            return NodeReading(gpus=rocm_smi.readings(await self._rocm()))
        listing = asyncio.ensure_future(self._processes())
        try:
            gpus = await self._metrics()
        except BaseException:
            await cancel_and_wait(listing)
            raise
        processes = await listing
        if processes is None:
            return NodeReading(gpus=gpus)
        details = with_details(self._process_table, processes)
        return NodeReading(
            gpus=tuple(
                msgspec.structs.replace(gpu, processes=details.get(gpu.index)) for gpu in gpus
            )
        )

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:  # noqa: ARG002  # as the port has it
        """Not possible here."""
        raise no_power_limit(self.source)

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:  # noqa: ARG002  # as the port has it
        raise no_sm_clock(self.source)

    async def close(self) -> None:
        """Do nothing: nothing runs between readings."""
        self._process_table.forget_ended(())

    async def _enumerate(self) -> None:
        if self._uses_amd_smi:
            listed, static = await self._amd("list"), await self._amd("static")
            devices = amd_smi.device_facts(listed, static)
            self._limits = amd_smi.power_limits(static)
            self._driver_version = amd_smi.driver_version(static)
        else:
            document = await self._rocm()
            devices = rocm_smi.devices(document)
            self._driver_version = rocm_smi.driver_version(document)
        self._deadline.end_warm_up()
        uuids = {facts.index: facts.uuid for facts in devices}
        if uuids != self._linked:
            await self._find_links(uuids)
        self._facts = {
            facts.index: facts
            if facts.numa_node is not None
            else msgspec.structs.replace(facts, numa_node=self._numa_nodes.get(facts.index))
            for facts in devices
        }

    async def _find_links(self, uuids: Mapping[int, str]) -> None:
        """Find links once for the same GPUs; until then it is unknown which are near."""
        self._links, self._numa_nodes, self._linked = (), {}, {}
        try:
            if self._uses_amd_smi:
                self._links = topology.amd_smi_links(await self._amd("topology"), uuids)
            else:
                document = await self._document(self._rocm_smi_path, *topology.ROCM_ARGUMENTS)
                self._links = topology.rocm_smi_links(document, uuids)
                self._numa_nodes = topology.rocm_smi_numa_nodes(document)
        except SourceFailedError as error:
            log.info("amd_topology_unknown", reason=str(error))
        else:
            self._linked = uuids

    async def _metrics(self) -> tuple[GpuReading, ...]:
        metric = await self._amd("metric")
        if amd_smi.indices(metric) - self._facts.keys():
            await self._enumerate()
        gpus = amd_smi.readings(metric, self._facts, self._limits)
        if not gpus and self._facts:
            raise SourceFailedError(f"{self._amd_smi_path} metric names none of its GPUs")
        return gpus

    async def _processes(self) -> Mapping[int, tuple[GpuProcess, ...]] | None:
        """Return the processes; None where they cannot be listed, which is tried again after half a
        minute.
        """
        now = asyncio.get_running_loop().time()
        if now < self._no_processes_until:
            return None
        try:
            processes = amd_smi.processes(await self._amd("process"))
        except SourceFailedError as error:
            log.warning("amd_processes_unknown", reason=str(error))
            processes = None
        if processes is None:
            self._no_processes_until = now + PROCESS_PAUSE_SECONDS
        return processes

    async def _amd(self, command: str) -> Any:
        return await self._document(self._amd_smi_path, command, "--json")

    async def _rocm(self) -> Any:
        return await self._document(self._rocm_smi_path, *rocm_smi.ARGUMENTS)

    async def _document(self, path: str, *arguments: str) -> Any:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        output = await run_program(path, *arguments, deadline_seconds=self._deadline.seconds)
        self._deadline.record_run(loop.time() - started_at)
        return _decode(output, path)


def _decode(output: CommandOutput, path: str) -> Any:
    """The JSON of an output; lines of warnings may come before it."""
    for start in _DOCUMENT.finditer(output.stdout):
        try:
            return msgspec.json.decode(output.stdout[start.start() :].encode())
        except msgspec.DecodeError:
            continue
    raise SourceFailedError(f"{path} said: {output.summary}")
