"""nvidia-smi, for hosts whose NVML cannot be loaded: one CSV query per reading."""

import asyncio
import contextlib
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from typing import Final

from schemas.telemetry import Source
from services.telemetry.domain.smi_csv import (
    NEEDED_FIELDS,
    QUERY_FIELDS,
    SmiReport,
    parse_report,
    refused_field,
    reports_no_devices,
)
from services.telemetry.ports import (
    Inventory,
    ProbeHungError,
    Reading,
    SourceAbsentError,
    SourceFailedError,
)
from shared.lifecycle import dying_with_parent
from shared.logging import log

_REAP_SECONDS: Final = 1.0


class NvidiaSmiSource:
    """Runs the program for every reading. Fields that its version does not know stay unknown."""

    source: Final = Source.NVIDIA_SMI

    def __init__(self, path: str, *, deadline_seconds: float) -> None:
        self._path = path
        self._deadline_seconds = deadline_seconds
        self._fields: tuple[str, ...] = QUERY_FIELDS
        self._problems: tuple[str, ...] = ()

    async def open(self) -> None:
        """Absent without the program, or where it works and sees no device."""
        if shutil.which(self._path) is None:
            raise SourceAbsentError(f"{self._path} is not installed")
        report = await self._report()
        if not report.gpus:
            raise SourceAbsentError(f"{self._path} sees no devices")

    async def inventory(self) -> Inventory:
        """The devices that answer now."""
        report = await self._report()
        return Inventory(
            devices=tuple(gpu.facts for gpu in report.gpus),
            driver_version=next((gpu.driver_version for gpu in report.gpus), None),
        )

    async def read(self) -> Reading:
        """The devices that answer now. None is called lost: an error line names no uuid."""
        report = await self._report()
        return Reading(gpus=tuple(gpu.reading for gpu in report.gpus))

    async def close(self) -> None:
        """Nothing is kept between readings."""

    async def _report(self) -> SmiReport:
        output = await self._query()
        while (field := refused_field(output)) in self._fields and field not in NEEDED_FIELDS:
            self._fields = tuple(known for known in self._fields if known != field)
            log.info("smi_field_unknown", field=field)
            output = await self._query()
        report = parse_report(output, self._fields)
        if report.problems != self._problems:
            self._problems = report.problems
            log.warning("smi_lines_unusable", lines=report.problems)
        if not report.gpus and not reports_no_devices(output):
            said = " ".join(output.split())[:300] or "nothing"
            raise SourceFailedError(f"{self._path} said: {said}")
        return report

    async def _query(self) -> str:
        """What the program wrote, to stdout or stderr, whatever its exit code."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._path,
                f"--query-gpu={','.join(self._fields)}",
                "--format=csv,noheader,nounits",
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                preexec_fn=dying_with_parent(),
            )
        except OSError as error:
            raise SourceFailedError(f"{self._path} does not start: {error}") from error
        try:
            async with asyncio.timeout(self._deadline_seconds):
                output, _ = await process.communicate()
        except TimeoutError as error:
            raise ProbeHungError(
                f"expected {self._path} to end within {self._deadline_seconds:g} s, it did not"
            ) from error
        finally:
            await _kill(process)
        return output.decode(errors="replace")


async def _kill(process: Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # Stuck inside the driver it dies when the driver lets go of it; the event loop reaps it then.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _REAP_SECONDS)
