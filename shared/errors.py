"""The errors that decide what happens to a message: refuse it, retry it, or give it up."""

from typing import Any, Final
from uuid import UUID

from schemas.errors import ErrorCode, Refused

LONGEST_MESSAGE: Final = 4000  # characters; a refusal has to fit into a message of the bus


class StewardError(Exception):
    """Root of this product's own errors."""


class RefusedError(StewardError):
    """The request cannot be met, nothing was changed. Becomes the `Refused` its sender gets.

    A message that repeats what came may be of any length; its middle is left out then.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        path: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.code = code
        self.message = shortened(message)
        self.path = shortened(path) if path is not None else None
        super().__init__(self.message)
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


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """The text, its middle left out where it is longer than that."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


class UnavailableError(StewardError):
    """What is needed outside (Postgres, the bus, a service) is down. Retried without limit."""


class NodeUnavailableError(UnavailableError):
    """A node's service does not answer. Nothing of the platform starts it again."""


class PermanentError(StewardError):
    """A message that can never succeed, however often tried. Goes to `dead_letter` at once."""
