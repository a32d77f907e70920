"""All known failures in the order in which they are searched for, and the search."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from shared.failures.containers import ENGINE_ACCESS, GPU_ACCESS, IMAGES
from shared.failures.devices import (
    ABSENT_DEVICES,
    AMD_ACCESS,
    FAILED_DEVICES,
    MEMORY,
    SHARED_MEMORY,
)
from shared.failures.engines import HOST, MODELS, OF_ONE_ENGINE, PARAMETERS, PROGRAMS
from shared.failures.log_lines import Weight, weigh_lines
from shared.known_failure import Known, KnownFailure

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
    AMD_ACCESS,
    *ABSENT_DEVICES,
    *FAILED_DEVICES,
    *OF_ONE_ENGINE,
    *MODELS,
    *PARAMETERS,
    *PROGRAMS,
)

MAX_LOG_CHARACTERS: Final = 512 << 10  # characters of a log that are weighed
SEARCHED: Final = 32 << 10  # characters of each weight that the catalogue is searched for: < 0.1 s
# Some patterns scan the rest of a line from each of its positions.
_LONG_LINE: Final = re.compile(r"[^\n]{1000}(?=[^\n])")


class Finding(Struct, frozen=True, kw_only=True):
    """A known failure, and the first line of the text that shows it."""

    failure: KnownFailure
    line: str


def recognise(text: str) -> KnownFailure | None:
    """Return the cause that a log or an error message shows, None if it is none of the known."""
    return next((finding.failure for finding in findings(text)), None)


def findings(text: str) -> tuple[Finding, ...]:
    """Return everything known that a log or an error message shows, the cause first.

    What was raised says more than other text, and that more than a warning; of equal weight a cause
    comes before what follows from it. A line shows one failure. Searched is the end of a long text,
    long lines in pieces: the writer of a log must not choose how long it is searched.
    """
    by_weight: dict[Weight, list[str]] = {}
    for weight, line in weigh_lines(_LONG_LINE.sub(r"\g<0>\n", text[-MAX_LOG_CHARACTERS:])):
        by_weight.setdefault(weight, []).append(line)
    # A message may go on in lines of its own: they are searched together, and told apart by weight.
    causes: dict[str, Finding] = {}
    consequences: dict[str, Finding] = {}
    if Weight.RAISED in by_weight:
        by_weight.pop(Weight.WARNING, None)  # it went on after that, and ended of something else
    for weight in sorted(by_weight, reverse=True):
        for failure, finding in _search("\n".join(by_weight[weight])[-SEARCHED:]):
            findings = consequences if failure.is_consequence else causes
            findings.setdefault(finding.line, finding)
    by_line = dict(causes)
    for line, finding in consequences.items():
        by_line.setdefault(line, finding)
    first: dict[KnownFailure, Finding] = {}
    for finding in by_line.values():
        first.setdefault(finding.failure, finding)
    return tuple(first.values())


def _search(text: str) -> Iterator[tuple[Known, Finding]]:
    """Yield the rows that match, in the order of the catalogue, each with its first line."""
    for failure in CATALOGUE:
        if match := failure.pattern.search(text):
            begin = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line = text[begin : end if end >= 0 else len(text)].strip()
            yield failure, Finding(failure=failure.failure, line=_shorten(line, match[0]))


def _shorten(line: str, matched: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    at = max(0, line.find(matched) - LINE_CHARACTERS // 3)
    return line[at : at + LINE_CHARACTERS]
