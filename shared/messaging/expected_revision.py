"""Commands that hold only for what their sender has seen."""

from schemas.errors import ErrorCode
from shared.errors import RefusedError


def require_revision(expected: int | None, present: int) -> None:
    """Raises RefusedError if another is expected; None expects none."""
    if expected is not None and expected != present:
        raise RefusedError(
            ErrorCode.CHANGED_SINCE,
            f"expected revision {expected}, found {present}: read it again",
            path="$.expected_revision",
        )
