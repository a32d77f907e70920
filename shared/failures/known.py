"""One known failure: the text that it is recognised by, and what it means."""

import re
from typing import Final

from msgspec import Struct

from schemas.executor.attempts import FailureKind

_ORDINARY: Final = re.IGNORECASE | re.MULTILINE


class KnownFailure(Struct, frozen=True, kw_only=True):
    """`title` says what happened; `hint` what it means, where that is not plain, and what to do."""

    kind: FailureKind
    title: str
    hint: str


class Known(Struct, frozen=True, kw_only=True):
    """A row of the catalogue.

    `example` is a text as its program writes it, `source` which program, and since or up to which
    version where that is known; `measured` ones we have provoked ourselves.
    """

    failure: KnownFailure
    pattern: re.Pattern[str]
    example: str
    source: str


def known(
    kind: FailureKind, title: str, hint: str, *, pattern: str, example: str, source: str
) -> Known:
    """Letter case is ignored; `^` and `$` are those of a line."""
    return Known(
        failure=KnownFailure(kind=kind, title=title, hint=hint),
        pattern=re.compile(pattern, _ORDINARY),
        example=example,
        source=source,
    )
