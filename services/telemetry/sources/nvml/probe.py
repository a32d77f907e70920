"""One NVML child process: its requests, their deadlines, and the GPUs that it was stuck in."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Final, Literal, cast

import msgspec

from services.telemetry.host.container_labels import engine_socket
from services.telemetry.sources.nvml.protocol import (
    LENGTH,
    MAX_BYTES,
    SECONDS,
    Absent,
    CapRefused,
    CapSet,
    Done,
    Failed,
    InventoryTaken,
    LockClock,
    MakeMig,
    MigRefused,
    Open,
    ProbeReply,
    Read,
    ReadingTaken,
    RemoveMig,
    SetCap,
    Stuck,
    TakeInventory,
    decode_reply,
    frame,
)
from services.telemetry.sources.source import ProbeHungError, SourceAbsentError, SourceFailedError
from shared.paths import python_path

# A process stuck inside the driver cannot be killed before the driver lets go of it.
MAX_UNDEAD: Final = 3
# Shares of a deadline: when the rescue begins, and how long a call must have lasted by then.
RESCUE_SHARE: Final = 0.25
STUCK_SHARE: Final = 0.125
_REAP_SECONDS: Final = 1.0
_READ: Final = frame(Read())

_undead: set[asyncio.Future[Literal[True]]] = set()


class Probe:
    """Started by `start`; after an error close it. `protocol.py` explains the rescue pipe.

    `stuck` are the GPUs that the child named and that still hang, in that order.
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
        self._rescue_pipe: int | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._took_inventory = False
        self.stuck: list[Stuck] = []

    @property
    def pid(self) -> int | None:
        return None if self._transport is None else self._transport.get_pid()

    async def start(self) -> None:
        """Start the child, initialise NVML there. Raises SourceAbsentError, SourceFailedError."""
        if len(_undead) >= MAX_UNDEAD:
            raise ProbeHungError(f"{len(_undead)} earlier probes are still stuck in the driver")
        child_pipe, self._rescue_pipe = os.pipe()
        try:
            self._transport, self._child = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Child(self.stuck.append),
                *(sys.executable, "-m", "services.telemetry.sources.nvml.child"),
                *(str(os.getpid()), str(child_pipe), engine_socket(self._environ) or ""),
                stderr=None,
                pass_fds=(child_pipe,),
                env={**self._environ, "PYTHONPATH": python_path(self._environ)},
            )
        finally:
            os.close(child_pipe)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        longer = self._open_deadline_seconds
        reply = await self._ask(frame(Open()), "open", longer, longer)
        if not isinstance(reply, Done):
            raise _unexpected_reply(reply)

    async def inventory(self, request: TakeInventory) -> InventoryTaken:
        """List the devices within the longer deadline, as it may initialise NVML anew.

        For the first one the rescue waits for it too: a driver wakes up GPU by GPU.
        """
        longer = self._open_deadline_seconds
        rescue_seconds = self._deadline_seconds if self._took_inventory else longer
        reply = await self._ask(frame(request), "inventory", longer, rescue_seconds)
        if not isinstance(reply, InventoryTaken):
            raise _unexpected_reply(reply)
        self._took_inventory = True
        return reply

    async def read(self) -> ReadingTaken:
        """Raises ProbeHungError after the deadline."""
        reply = await self._ask(_READ, "read", self._deadline_seconds, self._deadline_seconds)
        if not isinstance(reply, ReadingTaken):
            raise _unexpected_reply(reply)
        if self.stuck:
            self.stuck[:] = [gpu for gpu in self.stuck if reply.hung.keys() & gpu.uuids]
        return reply

    async def cap(self, request: SetCap) -> CapSet | CapRefused:
        """Set a power limit."""
        seconds = self._deadline_seconds
        reply = await self._ask(frame(request), "cap", seconds, seconds)
        if not isinstance(reply, CapSet | CapRefused):
            raise _unexpected_reply(reply)
        return reply

    async def lock_clock(self, request: LockClock) -> Done | CapRefused:
        """Lock or unlock a clock."""
        seconds = self._deadline_seconds
        reply = await self._ask(frame(request), "a locked clock", seconds, seconds)
        if not isinstance(reply, Done | CapRefused):
            raise _unexpected_reply(reply)
        return reply

    async def change_mig(self, request: MakeMig | RemoveMig) -> Done | MigRefused:
        """Change it within the longer deadline: the driver takes its time."""
        longer = self._open_deadline_seconds
        reply = await self._ask(frame(request), "a change of MIG instances", longer, longer)
        if not isinstance(reply, Done | MigRefused):
            raise _unexpected_reply(reply)
        return reply

    async def close(self) -> None:
        """Kill the child; one that does not die at once is reaped later."""
        transport, self._transport = self._transport, None
        child, self._child, self._stdin = self._child, None, None
        if self._rescue_pipe is not None:
            os.close(self._rescue_pipe)
            self._rescue_pipe = None
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
        self, request: bytes, what: str, deadline_seconds: float, rescue_seconds: float
    ) -> ProbeReply:
        """The reply. The rescue begins after a share of `rescue_seconds`, and is repeated."""
        child, stdin = self._child, self._stdin
        if child is None or stdin is None:
            raise SourceFailedError("the probe is closed")
        if child.failure is not None:
            raise SourceFailedError(f"the NVML probe ended: {child.failure!r}")
        try:
            stdin.write(request)
        except RuntimeError as error:  # uvloop's for a pipe whose end it has not reported yet
            raise SourceFailedError(f"the NVML probe ended: {error}") from error
        answer = child.expect_reply()
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline_seconds
        self._timer = loop.call_later(
            RESCUE_SHARE * rescue_seconds, self._rescue, STUCK_SHARE * rescue_seconds, ends_at
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
            self._timer.cancel()

    def _rescue(self, stuck_seconds: float, ends_at: float) -> None:
        """Have the child go on without the GPU it is stuck in; past the deadline, fail."""
        loop = asyncio.get_running_loop()
        seconds_left = ends_at - loop.time()
        if self._child is not None and seconds_left <= 0:
            self._child.fail(TimeoutError())
        elif self._rescue_pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._rescue_pipe, SECONDS.pack(stuck_seconds))
            self._timer = loop.call_later(
                min(stuck_seconds, seconds_left), self._rescue, stuck_seconds, ends_at
            )


class _Child(asyncio.SubprocessProtocol):
    """Assembles frames, and hands each reply to the request that waits for it."""

    def __init__(self, on_stuck: Callable[[Stuck], None]) -> None:
        self._on_stuck = on_stuck
        self._received = bytearray()
        self._answer: asyncio.Future[ProbeReply] | None = None
        self.failure: Exception | None = None
        self.ended = asyncio.Event()

    def expect_reply(self) -> asyncio.Future[ProbeReply]:
        """The next reply; there is one request at a time."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def fail(self, error: Exception) -> None:
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
            self._receive(body)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._break(exc or EOFError(f"it closed pipe {fd}"))

    def process_exited(self) -> None:
        self.ended.set()

    def _receive(self, body: bytes) -> None:
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


def _unexpected_reply(reply: ProbeReply) -> SourceAbsentError | SourceFailedError:
    match reply:
        case Absent(detail=detail):
            return SourceAbsentError(detail)
        case Failed(detail=detail):
            return SourceFailedError(f"NVML: {detail}")
        case _:
            return SourceFailedError(f"the probe answered {type(reply).__name__}")
