"""What the API of a cluster refuses, and what its silence is."""

from typing import Final

import msgspec
from msgspec import Struct

from shared.errors import StewardError, UnavailableError, shorten

NOT_FOUND: Final = 404
FORBIDDEN: Final = 403
CONFLICT: Final = 409
GONE: Final = 410
UNPROCESSABLE: Final = 422
TOO_MANY_REQUESTS: Final = 429
INTERNAL_ERROR: Final = 500
_MAX_TEXT: Final = 500


class KubernetesError(StewardError):
    """The API refused. `reason` is Kubernetes' own word, such as NotFound, Forbidden, Expired."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason, self.message = code, reason, shorten(message)
        super().__init__(f"{reason}: {self.message}" if reason else self.message)


class KubernetesUnavailable(KubernetesError, UnavailableError):
    """No answer (`code` 0), too late a one, or one that says to try again."""


class Status(Struct, frozen=True):
    """The API's `Status`, which says what went wrong."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None


def error_of(code: int, body: bytes) -> KubernetesError:
    """The error of an answer with this HTTP status."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:  # by something that stands before the API, or for it
        status = Status(message=body.decode(errors="replace").strip()[:_MAX_TEXT])
    return error_of_status(status, code)


def error_of_status(status: Status, code: int = INTERNAL_ERROR) -> KubernetesError:
    """The error of a `Status`; `code` is for one that names none."""
    code = status.code or code
    kind = (
        KubernetesUnavailable
        if code == TOO_MANY_REQUESTS or code >= INTERNAL_ERROR
        else KubernetesError
    )
    return kind(code, status.reason or f"HTTP {code}", status.message or "no further words")
