"""One child process that talks to NVML, and what it was found to be stuck in."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from services.telemetry.container_labels import engine_socket
from services.telemetry.ports import ProbeHungError, SourceAbsentError, SourceFailedError
from services.telemetry.probe_protocol import (
    LENGTH,
    MAX_BYTES,
    SECONDS,
    Absent,
    Cap,
    Capped,
    CapRefused,
    Done,
    Failed,
    InventoryTaken,
    Open,
    ProbeReply,
    Read,
    ReadingTaken,
    Stuck,
    TakeInventory,
    decode_reply,
    framed,
)

# A process stuck inside the driver cannot be killed before the driver lets go of it.
MAX_UNDEAD: Final = 3
# Shares of a deadline: how long one GPU may keep the others waiting, and how long it must have.
PATIENCE: Final = 0.25
STUCK: Final = 0.125
_REAP_SECONDS: Final = 1.0
_READ: Final = framed(Read())

_undead: set[asyncio.Future[Literal[True]]] = set()


class Probe:
    """Started by `start`. After an error it is of no use: close it.

    While a request is not answered, the child is asked to go on without the GPU that it is stuck
    in; `stuck` are those that it named and that still hang, first come first.
    """

    def __init__(
        self,
        *,
        deadline_seconds: float,
        open_deadline_seconds: float,
        environ: Mapping[str, str],
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._open_deadline_seconds = open_deadline_seconds
        self._environ = environ
        self._child: _Child | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._rescue: int | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._later: asyncio.TimerHandle | None = None
        self._took_inventory = False
        self.stuck: list[Stuck] = []

    @property
    def pid(self) -> int | None:
        """The child's."""
        return None if self._transport is None else self._transport.get_pid()

    async def start(self) -> None:
        """Start the child, initialise NVML there. Raises SourceAbsentError, SourceFailedError."""
        if len(_undead) >= MAX_UNDEAD:
            raise ProbeHungError(f"{len(_undead)} earlier probes are still stuck in the driver")
        theirs, self._rescue = os.pipe()
        try:
            self._transport, self._child = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Child(self.stuck.append),
                *(sys.executable, "-m", "services.telemetry.nvml_child"),
                *(str(os.getpid()), str(theirs), engine_socket(self._environ) or ""),
                stderr=None,
                pass_fds=(theirs,),
                env={**self._environ, "PYTHONPATH": _python_path(self._environ)},
            )
        finally:
            os.close(theirs)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        longer = self._open_deadline_seconds
        reply = await self._ask(framed(Open()), "open", longer, longer)
        if not isinstance(reply, Done):
            raise _unexpected(reply)

    async def inventory(self, request: TakeInventory) -> InventoryTaken:
        """Bounded by the longer deadline, as it may initialise NVML anew.

        The first one also has its patience: a driver wakes up GPU by GPU.
        """
        longer = self._open_deadline_seconds
        patience = self._deadline_seconds if self._took_inventory else longer
        reply = await self._ask(framed(request), "inventory", longer, patience)
        if not isinstance(reply, InventoryTaken):
            raise _unexpected(reply)
        self._took_inventory = True
        return reply

    async def read(self) -> ReadingTaken:
        """Raises ProbeHungError after the deadline."""
        reply = await self._ask(_READ, "read", self._deadline_seconds, self._deadline_seconds)
        if not isinstance(reply, ReadingTaken):
            raise _unexpected(reply)
        if self.stuck:
            self.stuck[:] = [one for one in self.stuck if reply.hung.keys() & one.uuids]
        return reply

    async def cap(self, request: Cap) -> Capped | CapRefused:
        """Set a power limit."""
        seconds = self._deadline_seconds
        reply = await self._ask(framed(request), "cap", seconds, seconds)
        if not isinstance(reply, Capped | CapRefused):
            raise _unexpected(reply)
        return reply

    async def close(self) -> None:
        """Kill the child, and leave it to be reaped if it does not die at once."""
        transport, self._transport = self._transport, None
        child, self._child, self._stdin = self._child, None, None
        if self._rescue is not None:
            os.close(self._rescue)
            self._rescue = None
        if transport is None or child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            transport.kill()
        reaped = asyncio.ensure_future(child.ended.wait())
        _undead.add(reaped)
        reaped.add_done_callback(_undead.discard)
        try:
            await asyncio.wait({reaped}, timeout=_REAP_SECONDS)
        finally:
            transport.close()

    async def _ask(
        self, request: bytes, what: str, deadline_seconds: float, patience_seconds: float
    ) -> ProbeReply:
        """The reply; after a part of the patience the child is urged to go on."""
        child, stdin = self._child, self._stdin
        if child is None or stdin is None:
            raise SourceFailedError("the probe is closed")
        if child.failure is not None:
            raise SourceFailedError(f"the NVML probe ended: {child.failure!r}")
        try:
            stdin.write(request)
        except RuntimeError as error:  # uvloop's word for a pipe whose end it has not told of yet
            raise SourceFailedError(f"the NVML probe ended: {error}") from error
        answer = child.expect_reply()
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline_seconds
        self._later = loop.call_later(
            PATIENCE * patience_seconds, self._urge, STUCK * patience_seconds, ends_at
        )
        try:
            return await answer
        except TimeoutError as error:
            raise ProbeHungError(
                f"expected NVML to answer {what} within {deadline_seconds:g} s, it did not"
            ) from error
        except (EOFError, OSError, msgspec.DecodeError) as error:
            raise SourceFailedError(f"the NVML probe ended: {error!r}") from error
        finally:
            self._later.cancel()

    def _urge(self, stuck_seconds: float, ends_at: float) -> None:
        """Have the child go on without the GPU that it is stuck in, if it is in one; or give up."""
        loop = asyncio.get_running_loop()
        left = ends_at - loop.time()
        if self._child is not None and left <= 0:
            self._child.fail(TimeoutError())
        elif self._rescue is not None:
            with contextlib.suppress(OSError):
                os.write(self._rescue, SECONDS.pack(stuck_seconds))
            self._later = loop.call_later(
                min(stuck_seconds, left), self._urge, stuck_seconds, ends_at
            )


class _Child(asyncio.SubprocessProtocol):
    """Puts frames together; without streams in between, as this happens every second."""

    def __init__(self, on_stuck: Callable[[Stuck], None]) -> None:
        self._on_stuck = on_stuck
        self._received = bytearray()
        self._answer: asyncio.Future[ProbeReply] | None = None
        self.failure: Exception | None = None
        self.ended = asyncio.Event()

    def expect_reply(self) -> asyncio.Future[ProbeReply]:
        """The next reply; one at a time."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def fail(self, error: Exception) -> None:
        """End the wait for a reply."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd
        received = self._received
        received += data
        while len(received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(received)
            end = LENGTH.size + length
            if length > MAX_BYTES:
                self._break(EOFError(f"expected at most {MAX_BYTES} bytes, found {length}"))
                return
            if len(received) < end:
                return
            body = bytes(received[LENGTH.size : end])
            del received[:end]
            self._take(body)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._break(exc or EOFError(f"it closed pipe {fd}"))

    def process_exited(self) -> None:
        self.ended.set()

    def _take(self, body: bytes) -> None:
        try:
            reply = decode_reply(body)
        except msgspec.DecodeError as error:
            self._break(error)
            return
        if isinstance(reply, Stuck):
            self._on_stuck(reply)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(reply)

    def _break(self, error: Exception) -> None:
        self.failure = error
        self.fail(error)


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
