"""What users of the bus changed without the gateway, for its audit log."""

from typing import Any
from uuid import UUID

from schemas.base import Event
from schemas.errors import ErrorCode


class CommandRecorded(Event, frozen=True, kw_only=True):
    """A command that came over NATS from no service and no node, with what it did.

    `sender` is the user that sent it, as the server proves it; empty: it came on a subject of all
    who may speak for `namespace`, and nothing tells them apart. `what` is the command's tag, `of`
    the id of what it names. `before` and `after` are the reservation's or task's state then; None:
    it was not there, or the command names another thing. `refused` is why nothing was changed.
    """

    namespace: str
    command_id: UUID
    sender: str
    what: str
    of: str
    refused: ErrorCode | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
