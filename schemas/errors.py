"""The closed set of error codes and the answers to commands."""

from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from schemas.base import Count, Epoch, Seconds


class ErrorCode(StrEnum):
    """Why something was refused.

    HTTP status and exit code follow from `HTTP_STATUS` and `EXIT_CODE`.
    """

    BAD_REQUEST = "bad_request"  # cannot be decoded, or a field has the wrong type or value
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"  # the aggregate is in a state that does not allow this
    CHANGED_SINCE = "changed_since"  # it is not what the client has read; read it again
    NAME_TAKEN = "name_taken"  # an unfinished task of the namespace has this name
    COMMAND_ID_REUSED = "command_id_reused"  # this command id came before with another body
    STALE_EPOCH = "stale_epoch"  # a newer grant exists; the sender must stop what it runs
    LEASE_LOST = "lease_lost"  # the reservation has ended; the sender must stop what it runs
    UNSATISFIABLE = "unsatisfiable"  # can never fit on this fleet
    UNSUPPORTED = "unsupported"  # this installation has nothing that could do it
    STILL_RUNNING = "still_running"  # the stop is under way; ask again
    TOO_LARGE = "too_large"
    TOO_MANY_REQUESTS = "too_many_requests"  # of one token; try again later
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"  # the owner or what it needs is down; try again
    INTERNAL = "internal"


HTTP_STATUS: dict[ErrorCode, int] = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.CHANGED_SINCE: 412,
    ErrorCode.NAME_TAKEN: 409,
    ErrorCode.COMMAND_ID_REUSED: 409,
    ErrorCode.STALE_EPOCH: 409,
    ErrorCode.LEASE_LOST: 409,
    ErrorCode.UNSATISFIABLE: 422,
    ErrorCode.UNSUPPORTED: 422,
    ErrorCode.STILL_RUNNING: 409,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}

EXIT_CODE: dict[ErrorCode, int] = {
    ErrorCode.BAD_REQUEST: 2,
    ErrorCode.UNAUTHENTICATED: 4,
    ErrorCode.FORBIDDEN: 4,
    ErrorCode.NOT_FOUND: 5,
    ErrorCode.CONFLICT: 6,
    ErrorCode.CHANGED_SINCE: 6,
    ErrorCode.NAME_TAKEN: 6,
    ErrorCode.COMMAND_ID_REUSED: 6,
    ErrorCode.STALE_EPOCH: 6,
    ErrorCode.LEASE_LOST: 6,
    ErrorCode.UNSATISFIABLE: 7,
    ErrorCode.UNSUPPORTED: 7,
    ErrorCode.STILL_RUNNING: 6,
    ErrorCode.TOO_LARGE: 2,
    ErrorCode.TOO_MANY_REQUESTS: 8,
    ErrorCode.TIMEOUT: 8,
    ErrorCode.UNAVAILABLE: 8,
    ErrorCode.INTERNAL: 1,
}


class Accepted(Struct, frozen=True, kw_only=True, tag_field="type", tag="accepted"):
    """The command is committed. `revision` is the aggregate's after it.

    Answers to renewals also have `lease_ttl_seconds`, counted from the moment the renewal was sent,
    and the grant's `epoch`.
    """

    command_id: UUID
    revision: Count = 0
    lease_ttl_seconds: Seconds | None = None
    epoch: Epoch | None = None


class Refused(Struct, frozen=True, kw_only=True, tag_field="type", tag="refused"):
    """Nothing was changed.

    `path` names the offending field as `$.a.b[0]`; None when no single field is at fault.
    """

    code: ErrorCode
    message: str
    command_id: UUID | None = None
    path: str | None = None
    details: dict[str, Any] = {}

    @property
    def retryable(self) -> bool:
        """True if the same request may succeed later unchanged."""
        return self.code in RETRYABLE


RETRYABLE = frozenset(
    {
        ErrorCode.UNAVAILABLE,
        ErrorCode.TIMEOUT,
        ErrorCode.STILL_RUNNING,
        ErrorCode.TOO_MANY_REQUESTS,
        ErrorCode.INTERNAL,
    }
)
Reply = Accepted | Refused
