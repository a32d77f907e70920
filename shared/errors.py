"""The errors that decide what happens to a message: refuse it, retry it, or give it up."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from schemas.errors import ErrorCode, Refused

MISTAKES: Final = "mistakes"  # among a refusal's details: paths and messages, where it has several
MAX_MISTAKES: Final = 20
MAX_MESSAGE: Final = 4000  # characters; a refusal has to fit into a message of the bus


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
        self.message = shorten(message)
        self.path = shorten(path) if path is not None else None
        super().__init__(self.message)
        self.details = details or {}

    def as_refused(self, command_id: UUID | None = None) -> Refused:
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


def together(refusals: Sequence[RefusedError]) -> RefusedError:
    """Return one refusal for several mistakes of an input: the first, whose `details` list all.

    There is one at least. A mistake that came twice counts once.
    """
    listed = {
        (mistake["path"], mistake["message"]): mistake
        for refusal in refusals
        for mistake in refusal.details.get(MISTAKES)
        or [{"path": refusal.path, "message": refusal.message}]
    }
    first = refusals[0]
    if len(listed) == 1:
        return first
    details = {**first.details, MISTAKES: list(listed.values())[:MAX_MISTAKES]}
    return RefusedError(first.code, first.message, path=first.path, details=details)


class Mistakes:
    """Refusals that are collected, so that a person reads all of them at once."""

    def __init__(self) -> None:
        self._refusals: list[RefusedError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep the refusal of the block, if it ends by one."""
        try:
            yield
        except RefusedError as refusal:
            self._refusals.append(refusal)

    def refuse(self) -> None:
        """Raise RefusedError with all that were collected; nothing where none was."""
        if self._refusals:
            raise self.refusal()

    def refusal(self) -> RefusedError:
        """Return all that were collected as one; there is one at least."""
        return together(self._refusals)


@contextmanager
def rename_paths(find_path: Callable[[str | None, str], str | None]) -> Iterator[None]:
    """Have a refusal, and all mistakes in it, name another path, by path and message."""
    try:
        yield
    except RefusedError as error:
        mistakes = [
            {**mistake, "path": find_path(mistake["path"], mistake["message"])}
            for mistake in error.details.get(MISTAKES, ())
        ]
        raise RefusedError(
            error.code,
            error.message,
            path=find_path(error.path, error.message),
            details={**error.details, MISTAKES: mistakes} if mistakes else error.details,
        ) from None


def shorten(text: str, longest: int = MAX_MESSAGE) -> str:
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
