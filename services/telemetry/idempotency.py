"""The replies to commands, as long as this agent runs.

A node has no database, and needs none for this: a burst is over before it matters, and a restart
restores every power limit, so that nothing is left of what a repeated command did before.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from schemas.base import Command
from schemas.errors import Accepted, Reply
from shared.errors import RefusedError
from shared.messaging.idempotency import body_hash, is_final, replay_or_refuse

MAX_REPLIES: Final = 1024


class AnsweredCommands:
    """The newest 1,024 replies."""

    def __init__(self) -> None:
        self._replies: OrderedDict[UUID, tuple[bytes, Reply]] = OrderedDict()
        self._one_command = asyncio.Lock()

    async def once(self, command: Command, apply: Callable[[], Awaitable[None]]) -> Reply:
        """Apply a command, unless one of its id has a final reply; the reply.

        One command at a time. A retryable refusal is not stored; `apply` raises RefusedError to
        refuse.
        """
        async with self._one_command:
            return await self._once(command, apply)

    async def _once(self, command: Command, apply: Callable[[], Awaitable[None]]) -> Reply:
        digest = body_hash(command)
        if (remembered := self._replies.get(command.command_id)) is not None:
            return replay_or_refuse(command.command_id, digest, *remembered)
        reply: Reply
        try:
            await apply()
        except RefusedError as error:
            reply = error.as_refused(command.command_id)
        else:
            reply = Accepted(command_id=command.command_id)
        if is_final(reply):
            self._replies[command.command_id] = (digest, reply)
        if len(self._replies) > MAX_REPLIES:
            self._replies.popitem(last=False)
        return reply
