"""The errors that decide what happens to a message: refuse it, retry it, or give it up."""

from typing import Any
from uuid import UUID

from schemas.errors import ErrorCode, Refused


class StewardError(Exception):
    """Root of this product's own errors."""


class RefusedError(StewardError):
    """The request cannot be met, nothing was changed. Becomes the `Refused` its sender gets."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        path: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path = path
        self.details = details or {}

    def refused(self, command_id: UUID | None = None) -> Refused:
        """The answer on the wire."""
        return Refused(
            code=self.code,
            message=self.message,
            command_id=command_id,
            path=self.path,
            details=self.details,
        )

    @classmethod
    def from_refused(cls, refused: Refused) -> "RefusedError":
        """The error that an owner's refusal stands for."""
        return cls(refused.code, refused.message, path=refused.path, details=refused.details)


class UnavailableError(StewardError):
    """What is needed outside (Postgres, the bus, a service) is down. Retried without limit."""


class PermanentError(StewardError):
    """A message that can never succeed, however often tried. Goes to `dead_letter` at once."""
