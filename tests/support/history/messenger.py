"""Sends commands as an unreliable network would: some twice at once, some again much later."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.scheduler.reservations import ReleaseReservation, RenewReservation, RequestReservation
from shared.errors import UnavailableError
from shared.messaging.bus import Bus
from tests.support.history.records import Answered, AnyRecord, Asked, Fault, Verdict

# `lease_lost` and the like stay; these depend on the moment, so that a later copy may differ.
FLEETING = frozenset(
    {ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.STILL_RUNNING, ErrorCode.INTERNAL}
)
TWICE_AT_ONCE = 0.05
AGAIN_LATER = 0.05
LATEST_SECONDS = 8.0


@dataclass(slots=True)
class Messenger:
    """Notes every command that is sent and every answer. `tasks` owns the late copies, `late` are
    they.
    """

    bus: Bus
    note: Callable[[AnyRecord], None]
    dice: random.Random
    tasks: asyncio.TaskGroup
    late: list["asyncio.Task[Any]"] = field(default_factory=list)

    async def ask(self, command: Command, *, timeout_seconds: float = 3.0) -> Reply | None:
        """The answer of the first copy; None if none came."""
        fate = self.dice.random()
        if fate < TWICE_AT_ONCE:
            self.note(Fault(at=time.monotonic(), what="command twice at once"))
            self.late.append(self.tasks.create_task(self._send(command, 1, timeout_seconds)))
        elif fate < TWICE_AT_ONCE + AGAIN_LATER:
            self.note(Fault(at=time.monotonic(), what="command again later"))
            pause = self.dice.uniform(0.1, LATEST_SECONDS)
            self.late.append(
                self.tasks.create_task(self._send_later(command, pause, timeout_seconds))
            )
        return await self._send(command, 0, timeout_seconds)

    async def _send_later(self, command: Command, pause: float, timeout_seconds: float) -> None:
        await asyncio.sleep(pause)
        await self._send(command, 1, timeout_seconds)

    async def _send(self, command: Command, copy: int, timeout_seconds: float) -> Reply | None:
        self.note(_asked(command, copy))
        reply: Reply | None = None
        try:
            reply = await self.bus.request(command, timeout_seconds=timeout_seconds)
        except UnavailableError:
            reply = None
        self.note(_answered(command, copy, reply))
        return reply


def _asked(command: Command, copy: int) -> Asked:
    about: dict[str, Any] = {}
    if isinstance(command, RequestReservation):
        request = command.request
        about = {
            "gpus": request.gpus,
            "nodes": request.nodes,
            "lease_ttl_seconds": request.lease_ttl_seconds,
            "cpu_count": request.cpu_count,
            "host_memory_mb": request.host_memory_mb,
        }
    if isinstance(command, RenewReservation | ReleaseReservation):
        about["epoch"] = command.epoch
    if isinstance(command, ReleaseReservation):
        about["stopped"] = command.stopped
    return Asked(
        at=time.monotonic(),
        command_id=command.command_id,
        what=type(command).__name__.removesuffix("Reservation").removesuffix("Experiment").lower(),
        reservation_id=getattr(command, "reservation_id", command.command_id),
        copy=copy,
        **about,
    )


def _answered(command: Command, copy: int, reply: Reply | None) -> Answered:
    refused = reply if reply is not None and not isinstance(reply, Accepted) else None
    return Answered(
        at=time.monotonic(),
        command_id=command.command_id,
        copy=copy,
        verdict=Verdict.UNKNOWN
        if reply is None
        else Verdict.REFUSED
        if refused is not None
        else Verdict.ACCEPTED,
        code=refused.code.value if refused is not None else None,
        fleeting=refused is not None and refused.code in FLEETING,
    )
