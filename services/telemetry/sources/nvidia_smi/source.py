"""nvidia-smi, for hosts whose NVML cannot be loaded: one CSV query per reading."""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuProcess, Source
from services.telemetry.domain.power_range import check_clock, limit_for
from services.telemetry.domain.tool_values import count
from services.telemetry.host.process_details import with_details
from services.telemetry.host.processes import ProcessTable
from services.telemetry.sources.command import AdaptiveDeadline, is_installed, run_program
from services.telemetry.sources.nvidia_smi.csv import (
    NEEDED_FIELDS,
    QUERY_FIELDS,
    SmiReport,
    bus_key,
    find_refused_field,
    lost_devices,
    parse_report,
    reports_no_devices,
    without,
)
from services.telemetry.sources.nvidia_smi.processes import PROCESS_FIELDS, parse_processes
from services.telemetry.sources.nvidia_smi.topology import ARGUMENTS as TOPOLOGY_ARGUMENTS
from services.telemetry.sources.nvidia_smi.topology import SmiTopology, parse_topology
from services.telemetry.sources.source import (
    Inventory,
    NodeReading,
    SourceAbsentError,
    SourceFailedError,
)
from shared.errors import RefusedError
from shared.logging import log
from shared.processes.command import CommandOutput
from shared.waiting import cancel_and_wait

PROCESS_PAUSE_SECONDS: Final = 30.0
WARNED_EXIT_CODE: Final = 14  # a damaged infoROM: what it lists is whole
_FORMAT: Final = "--format=csv,noheader,nounits"
_CUDA_VERSION = re.compile(r"CUDA Version\s*:\s*(\d+\.\d+)", re.IGNORECASE)


class NvidiaSmiSource:
    """Runs the program for every reading. Fields that its version does not know stay unknown."""

    source: Final = Source.NVIDIA_SMI

    def __init__(
        self, path: str, *, deadline_seconds: float, open_deadline_seconds: float = 15.0
    ) -> None:
        self._path = path
        self._deadline = AdaptiveDeadline(deadline_seconds, warm_up_seconds=open_deadline_seconds)
        self._fields: tuple[str, ...] = QUERY_FIELDS
        self._problems: tuple[str, ...] = ()
        self._uuids_by_bus: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._only: tuple[str, ...] = ()
        self._cuda_version: str | None = None
        self._connected: Mapping[int, str] = {}
        self._topology = SmiTopology()
        self._no_processes_until = 0.0
        self._process_table = ProcessTable()

    async def open(self) -> None:
        """Open the source; absent without the program, or where it works and sees no device."""
        if not is_installed(self._path):
            raise SourceAbsentError(f"{self._path} is not installed")
        report = await self._report()
        if not report.gpus:
            raise SourceAbsentError(f"{self._path} sees no devices")
        with contextlib.suppress(SourceFailedError):
            match = _CUDA_VERSION.search((await self._run("--version")).stdout)
            self._cuda_version = match.group(1) if match else None
        self._deadline.end_warm_up()

    async def inventory(self) -> Inventory:
        """The devices that answer now; those that were lost are queried again."""
        self._only = ()
        report = await self._report()
        self._deadline.end_warm_up()
        uuids = {gpu.facts.index: gpu.facts.uuid for gpu in report.gpus}
        if uuids != self._connected:
            await self._find_links(uuids)
        numa_nodes = self._topology.numa_nodes
        return Inventory(
            devices=tuple(
                msgspec.structs.replace(gpu.facts, numa_node=numa_nodes.get(gpu.facts.uuid))
                for gpu in report.gpus
            ),
            links=self._topology.links,
            driver_version=next((gpu.driver_version for gpu in report.gpus), None),
            cuda_driver_version=self._cuda_version,
        )

    async def read(self) -> NodeReading:
        """The devices that answer now, and those that a complaint names by their PCI address."""
        listing = asyncio.ensure_future(self._processes())
        try:
            report = await self._report()
        except BaseException:
            await cancel_and_wait(listing)
            raise
        processes = await listing
        readings = tuple(gpu.reading for gpu in report.gpus)
        if processes is not None:
            details = with_details(self._process_table, processes)
            readings = tuple(
                msgspec.structs.replace(reading, processes=details.get(reading.uuid, ()))
                for reading in readings
            )
        return NodeReading(gpus=readings, lost=dict(self._lost))

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:
        """Change it by another run of the program, which needs root for that."""
        report = await self._report()
        gpu = next((gpu for gpu in report.gpus if gpu.facts.uuid == uuid), None)
        limit = limit_for(gpu.facts if gpu else None, uuid, watts)
        limit_before = gpu.reading.power_limit_w if gpu else None
        if limit_before is None:
            raise RefusedError(ErrorCode.UNSUPPORTED, f"the power limit of {uuid} is not known")
        await self._change(uuid, f"--power-limit={limit:g}")
        return limit_before

    async def set_sm_clock(self, uuid: str, mhz: int | None) -> None:
        """Lock or unlock it by another run of the program, which needs root for that."""
        report = await self._report()
        facts = next((gpu.facts for gpu in report.gpus if gpu.facts.uuid == uuid), None)
        if facts is None or mhz is None:
            check_clock(facts, uuid, mhz, ())
            await self._change(uuid, "--reset-gpu-clocks")
            return
        output = await self._run("--query-supported-clocks=graphics", _FORMAT, f"--id={uuid}")
        numbers = [count(line.strip()) for line in output.stdout.splitlines()]
        check_clock(facts, uuid, mhz, [number for number in numbers if number is not None])
        await self._change(uuid, f"--lock-gpu-clocks={mhz},{mhz}")

    async def _change(self, uuid: str, setting: str) -> None:
        """Raises RefusedError in the program's words."""
        output = await self._run(f"--id={uuid}", setting)
        if output.exit_code != 0:
            forbidden = "permission" in output.summary.lower()
            code = ErrorCode.FORBIDDEN if forbidden else ErrorCode.UNSUPPORTED
            raise RefusedError(code, f"{self._path} said: {output.summary}")

    async def close(self) -> None:
        """Do nothing: nothing runs between readings."""
        self._process_table.forget_ended(())

    async def _find_links(self, uuids: Mapping[int, str]) -> None:
        """Find links once for the same GPUs; until then it is unknown which are near."""
        self._topology, self._connected = SmiTopology(), {}
        try:
            output = await self._run(*TOPOLOGY_ARGUMENTS)
        except SourceFailedError as error:
            log.info("smi_topology_unknown", reason=str(error))
        else:
            self._topology = parse_topology(output.stdout, uuids)
            self._connected = uuids if output.exit_code == 0 else {}

    async def _report(self) -> SmiReport:
        """The query's result, without the fields that this version refuses."""
        output = await self._query()
        while (field := find_refused_field(output)) in self._fields and field not in NEEDED_FIELDS:
            self._fields = without(self._fields, field)
            log.info("smi_field_unknown", field=field)
            output = await self._query()
        report = parse_report(output, self._fields)
        self._uuids_by_bus |= {
            bus_key(gpu.facts.pci_bus_id): gpu.facts.uuid
            for gpu in report.gpus
            if gpu.facts.pci_bus_id is not None
        }
        lost = lost_devices(report.problems, self._uuids_by_bus)
        self._lost = self._lost | lost if self._only else lost
        remaining = tuple(sorted(set(self._uuids_by_bus.values()) - self._lost.keys()))
        silent = set(remaining) - {gpu.facts.uuid for gpu in report.gpus}
        if lost and silent and remaining != self._only:
            # The program ends at the first device that is lost: query the others by name.
            self._only = remaining
            return await self._report()
        self._log_problems(report.problems)
        if not report.gpus and not self._lost and not reports_no_devices(output):
            printed = " ".join(output.split())[:300] or "nothing"
            raise SourceFailedError(f"{self._path} said: {printed}")
        return report

    def _log_problems(self, problems: tuple[str, ...]) -> None:
        if problems != self._problems:
            self._problems = problems
            log.warning("smi_lines_unusable", lines=problems)

    async def _query(self) -> str:
        """Return what the program wrote, to stdout or stderr, whatever its exit code."""
        only = [f"--id={','.join(self._only)}"] if self._only else []
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        output = await self._run(f"--query-gpu={','.join(self._fields)}", _FORMAT, *only)
        self._deadline.record_run(loop.time() - started_at)
        return f"{output.stdout}\n{output.stderr}"

    async def _processes(self) -> Mapping[str, tuple[GpuProcess, ...]] | None:
        """Return the processes; None where they cannot be listed, which is tried again after half a
        minute.
        """
        now = asyncio.get_running_loop().time()
        if now < self._no_processes_until:
            return None
        try:
            output = await self._run(f"--query-compute-apps={','.join(PROCESS_FIELDS)}", _FORMAT)
        except SourceFailedError as error:
            processes, reason = None, str(error)
        else:
            processes, reason = parse_processes(output.stdout), output.summary
            if output.exit_code not in {0, WARNED_EXIT_CODE}:
                processes = None
        if processes is None:
            log.warning("smi_processes_unknown", reason=reason)
            self._no_processes_until = now + PROCESS_PAUSE_SECONDS
        return processes

    async def _run(self, *arguments: str) -> CommandOutput:
        return await run_program(self._path, *arguments, deadline_seconds=self._deadline.seconds)
