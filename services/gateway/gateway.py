"""What every route needs: the owners behind the bus, the event log, what is heard."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from schemas.base import Command, Query
from schemas.errors import Accepted, ErrorCode, Refused
from services.gateway.eventlog import EventLog
from services.gateway.live import Live
from shared.bus import Bus
from shared.database import Database
from shared.errors import RefusedError

V = TypeVar("V", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Given to every route."""

    bus: Bus
    database: Database
    log: EventLog
    live: Live

    async def send(self, command: Command) -> Accepted:
        """Have an owner do something. Raises RefusedError, UnavailableError without an answer."""
        reply = await self.bus.request(command)
        if isinstance(reply, Refused):
            raise RefusedError.from_refused(reply)
        return reply

    async def ask(self, query: Query, view: type[V], *, timeout_seconds: float = 5.0) -> V:
        """Ask an owner. Raises RefusedError, UnavailableError without an answer."""
        return await self.bus.query(query, view, timeout_seconds=timeout_seconds)


def require_encodable(value: object) -> None:
    """Raises RefusedError if a message cannot carry this: a number beyond 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        path = _path_to_overflow(msgspec.to_builtins(value), "$")
        raise RefusedError(
            ErrorCode.BAD_REQUEST, "expected a number of at most 64 bits", path=path
        ) from error


def _path_to_overflow(value: Any, path: str) -> str | None:
    match value:
        case bool():
            return None
        case int():
            return None if -(2**63) <= value < 2**64 else path
        case dict():
            places = [(f"{path}.{key}", inner) for key, inner in value.items()]
        case list() | tuple():
            places = [(f"{path}[{index}]", inner) for index, inner in enumerate(value)]
        case _:
            return None
    return next((found for at, inner in places if (found := _path_to_overflow(inner, at))), None)
