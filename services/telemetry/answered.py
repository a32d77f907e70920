"""What commands were answered, as long as this agent runs.

A node has no database, and needs none for this: a burst is over before it matters, and a restart
takes every power limit back, so that a repeated command finds nothing of what it did before.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from shared.codec import encode
from shared.errors import RefusedError

REMEMBERED: Final = 1024


class Answered:
    """The newest thousand answers."""

    def __init__(self) -> None:
        self._answers: OrderedDict[UUID, tuple[bytes, Reply]] = OrderedDict()
        self._one_command = asyncio.Lock()

    async def once(self, command: Command, apply: Callable[[], Awaitable[None]]) -> Reply:
        """Apply a command, unless one of its id was answered for good; the answer.

        One command at a time. What was refused only for now may be tried again; `apply` raises
        RefusedError to refuse.
        """
        async with self._one_command:
            return await self._once(command, apply)

    async def _once(self, command: Command, apply: Callable[[], Awaitable[None]]) -> Reply:
        digest = hashlib.sha256(encode(command)).digest()
        if (known := self._known(command, digest)) is not None:
            return known
        reply: Reply
        try:
            await apply()
        except RefusedError as error:
            reply = error.refused(command.command_id)
        else:
            reply = Accepted(command_id=command.command_id)
        if not (isinstance(reply, Refused) and reply.retryable):
            self._answers[command.command_id] = (digest, reply)
        if len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return reply

    def _known(self, command: Command, digest: bytes) -> Reply | None:
        if command.command_id not in self._answers:
            return None
        before, reply = self._answers[command.command_id]
        if before == digest:
            return reply
        return Refused(
            code=ErrorCode.COMMAND_ID_REUSED,
            message=f"command {command.command_id} came before with another body",
            command_id=command.command_id,
            path="$.command_id",
        )
