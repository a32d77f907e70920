"""NVML through a child process, so that a driver that hangs is a state and not the agent's end."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from schemas.telemetry import Source
from services.telemetry.ports import (
    Inventory,
    ProbeHungError,
    Reading,
    SourceAbsentError,
    SourceFailedError,
    no_power_limit,
)
from services.telemetry.probe_protocol import (
    LENGTH,
    MAX_BYTES,
    Absent,
    Ask,
    Done,
    Failed,
    InventoryTaken,
    ProbeReply,
    ReadingTaken,
    decode_reply,
    framed,
)

# A process stuck inside the driver cannot be killed before the driver lets go of it.
MAX_UNDEAD: Final = 3
_REAP_SECONDS: Final = 1.0

_undead: set[asyncio.Task[int]] = set()


class NvmlSource:
    """One child, started by `open`. After an error it is of no use: close it, open another."""

    source: Final = Source.NVML

    def __init__(
        self,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._open_deadline_seconds = open_deadline_seconds
        self._environ = dict(os.environ if environ is None else environ)
        self._child: Process | None = None

    async def open(self) -> None:
        """Start the child and initialise NVML there."""
        if len(_undead) >= MAX_UNDEAD:
            raise ProbeHungError(f"{len(_undead)} earlier probes are still stuck in the driver")
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.telemetry.nvml_child",
            str(os.getpid()),
            stdin=PIPE,
            stdout=PIPE,
            env={**self._environ, "PYTHONPATH": _python_path(self._environ)},
        )
        reply = await self._ask(Ask.OPEN, self._open_deadline_seconds)
        if not isinstance(reply, Done):
            raise _unexpected(reply)

    async def inventory(self) -> Inventory:
        """Enumerate; bounded by the longer deadline, as it may initialise NVML anew."""
        reply = await self._ask(Ask.INVENTORY, self._open_deadline_seconds)
        if not isinstance(reply, InventoryTaken):
            raise _unexpected(reply)
        return reply.inventory

    async def read(self) -> Reading:
        """Raises ProbeHungError after the deadline."""
        reply = await self._ask(Ask.READ, self._deadline_seconds)
        if not isinstance(reply, ReadingTaken):
            raise _unexpected(reply)
        return reply.reading

    async def set_power_limit(self, uuid: str, watts: float | None) -> float:  # noqa: ARG002  # as the port has it
        """Not possible here."""
        raise no_power_limit(self.source)

    async def close(self) -> None:
        """Kill the child, and leave it to be reaped if it does not die at once."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        reaped = asyncio.ensure_future(child.wait())
        _undead.add(reaped)
        reaped.add_done_callback(_undead.discard)
        await asyncio.wait({reaped}, timeout=_REAP_SECONDS)

    async def _ask(self, request: Ask, deadline_seconds: float) -> ProbeReply:
        child = self._child
        if child is None:
            raise SourceFailedError("the probe is closed")
        try:
            async with asyncio.timeout(deadline_seconds):
                return await _exchange(child, request)
        except TimeoutError as error:
            raise ProbeHungError(
                f"expected NVML to answer {request} within {deadline_seconds:g} s, it did not"
            ) from error
        except (EOFError, OSError, msgspec.DecodeError) as error:
            raise SourceFailedError(f"the NVML probe ended: {error!r}") from error


async def _exchange(child: Process, request: Ask) -> ProbeReply:
    if child.stdin is None or child.stdout is None:
        raise EOFError("the probe has no pipes")
    child.stdin.write(framed(request.value.encode()))
    await child.stdin.drain()
    (length,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
    if length > MAX_BYTES:
        raise EOFError(f"expected at most {MAX_BYTES} bytes, found {length}")
    return decode_reply(await child.stdout.readexactly(length))


def _unexpected(reply: ProbeReply) -> SourceAbsentError | SourceFailedError:
    match reply:
        case Absent(detail=detail):
            return SourceAbsentError(detail)
        case Failed(detail=detail):
            return SourceFailedError(f"NVML: {detail}")
        case _:
            return SourceFailedError(f"the probe answered {type(reply).__name__}")


def _python_path(environ: Mapping[str, str]) -> str:
    """The child imports this package wherever the agent was started."""
    here = str(Path(__file__).resolve().parents[2])
    before = environ.get("PYTHONPATH")
    return f"{here}{os.pathsep}{before}" if before else here
