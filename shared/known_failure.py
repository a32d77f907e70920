"""One known failure: the text that it is recognised by, and what it means."""

import re
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import FailureKind

_ORDINARY: Final = re.IGNORECASE | re.MULTILINE


class KnownFailure(Struct, frozen=True, kw_only=True):
    """`title` says what happened; `hint` what it means, where that is not plain, and what to do.

    `is_final`: the task itself is the cause, although others of its kind may pass.
    """

    kind: FailureKind
    title: str
    hint: str
    is_final: bool = False


class Known(Struct, frozen=True, kw_only=True):
    """A row of the catalogue.

    `example` is a text as its program writes it, `source` which program, and since or up to which
    version where that is known; `measured` ones we have provoked ourselves. `is_consequence`: other
    failures show this too, so it counts where no cause is known.
    """

    failure: KnownFailure
    pattern: re.Pattern[str]
    example: str
    source: str
    is_consequence: bool = False


def known_failure(
    kind: FailureKind,
    title: str,
    hint: str,
    *,
    pattern: str,
    example: str,
    source: str,
    is_consequence: bool = False,
    is_final: bool = False,
) -> Known:
    """Letter case is ignored; `^` and `$` are those of a line."""
    return Known(
        failure=KnownFailure(kind=kind, title=title, hint=hint, is_final=is_final),
        pattern=re.compile(pattern, _ORDINARY),
        example=example,
        source=source,
        is_consequence=is_consequence,
    )
