"""All known failures in the order in which they are searched for, and the search."""

import re
from typing import Final

from msgspec import Struct

from shared.failures.containers import ENGINE_ACCESS, GPU_ACCESS, IMAGES
from shared.failures.devices import ABSENT_DEVICES, FAILED_DEVICES, MEMORY, SHARED_MEMORY
from shared.failures.engines import HOST, MODELS, PARAMETERS, PROGRAMS
from shared.failures.known import Known, KnownFailure

LINE_CHARACTERS: Final = 300

# A cause comes before what follows from it: an engine that finds its port taken also reports ranks
# that did not meet, one without memory also a CUDA error, one without a model also bad parameters.
CATALOGUE: Final[tuple[Known, ...]] = (
    *GPU_ACCESS,
    *ENGINE_ACCESS,
    SHARED_MEMORY,  # a full one says "no space left on device", which is no disk
    *HOST,
    *IMAGES,
    *MEMORY,
    *ABSENT_DEVICES,
    *FAILED_DEVICES,
    *MODELS,
    *PARAMETERS,
    *PROGRAMS,
)

LONGEST: Final = 32 << 10  # characters: less than 0.1 s
# Some patterns scan the rest of a line from each of its positions.
_LONG_LINE: Final = re.compile(r"[^\n]{1000}(?=[^\n])")


class Finding(Struct, frozen=True, kw_only=True):
    """A known failure, and the first line of the text that shows it."""

    failure: KnownFailure
    line: str


def recognise(text: str) -> KnownFailure | None:
    """The cause that a log or an error message shows, None if it is none of the known ones."""
    text = _within(text, LONGEST)
    return next((each.failure for each in CATALOGUE if each.pattern.search(text)), None)


def findings(text: str, *, longest: int = LONGEST) -> tuple[Finding, ...]:
    """Everything known that a log or an error message shows, causes before consequences.

    A line shows one of them. Searched are the last `longest` characters, long lines in pieces:
    the writer of a log must not choose how long it is searched.
    """
    text = _within(text, longest)
    found: dict[str, Finding] = {}
    for each in CATALOGUE:
        if match := each.pattern.search(text):
            begin = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line = text[begin : end if end >= 0 else len(text)].strip()
            shown = _shortened(line, match[0])
            found.setdefault(line, Finding(failure=each.failure, line=shown))
    return tuple(found.values())


def _within(text: str, longest: int) -> str:
    return _LONG_LINE.sub(r"\g<0>\n", text[-longest:])


def _shortened(line: str, matched: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    at = max(0, line.find(matched) - LINE_CHARACTERS // 3)
    return line[at : at + LINE_CHARACTERS]
