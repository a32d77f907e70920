"""What users of the bus change is told to the audit log, in the transaction of the change."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid5

from schemas.audit import CommandRecorded
from schemas.base import NODE_PREFIX, PLATFORM, Command, tag_of
from schemas.errors import Refused, Reply
from shared.clock import utcnow
from shared.messaging.senders import is_of_somebody
from shared.postgres.database import Connection
from shared.postgres.outbox import stage

State = Mapping[str, Any]
# The fields that name what a command is about, in the order of what is said.
_NAMES: Final = ("task_id", "experiment_id", "reservation_id", "node_id", "name", "namespace")


@dataclass(frozen=True, slots=True)
class CommandAudit:
    """Of one owner: its event, and how it reads the state of what a command names."""

    event: type[CommandRecorded]
    state_of: Callable[[Connection, Command], Awaitable[State | None]]

    async def before(self, connection: Connection, command: Command) -> State | None:
        """Return what a command is about to change; None as well for one that is not recorded."""
        return await self.state_of(connection, command) if _is_recorded(command) else None

    async def record(
        self, connection: Connection, command: Command, state_before: State | None, reply: Reply
    ) -> None:
        """Stage what a command did; nothing for one of a service or a node."""
        if not _is_recorded(command):
            return
        state_after = await self.state_of(connection, command)
        event = self.event(
            message_id=uuid5(command.command_id, "recorded"),
            occurred_at=utcnow(),
            revision=1,
            namespace=_speaker(command),
            command_id=command.command_id,
            sender=command.sender,
            what=tag_of(type(command)),
            of=next((str(getattr(command, name)) for name in _NAMES if hasattr(command, name)), ""),
            refused=reply.code if isinstance(reply, Refused) else None,
            before=dict(state_before) if state_before is not None else None,
            after=dict(state_after) if state_after is not None else None,
        )
        await stage(connection, event)


def _is_recorded(command: Command) -> bool:
    """Nodes that an older release runs are told by their subjects alone."""
    return is_of_somebody(command) and not _speaker(command).startswith(NODE_PREFIX)


def _speaker(command: Command) -> str:
    field = type(command).speaker_field
    return PLATFORM if field is None else str(getattr(command, field))
