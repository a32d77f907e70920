"""What genai-bench says while it runs, with its own user interface switched off."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Said(Enum):
    """The lines that report how far it is."""

    RUN_STARTED = auto()
    NOTHING_COLLECTED = auto()
    REQUEST_FAILED = auto()
    TOKENS_ESTIMATED = auto()


_LINE: Final = re.compile(r"(?P<level>[A-Z]+) +\S+ \S+ - (?P<where>\S+) - (?P<message>.*)")
_MEANINGS: Final = (
    (re.compile(r"Starting benchmark with concurrency=\d+"), Said.RUN_STARTED),
    (re.compile(r".*No request metrics collected"), Said.NOTHING_COLLECTED),
    (re.compile(r"Received error response from server"), Said.REQUEST_FAILED),
    (re.compile(r".*There is no usage info returned"), Said.TOKENS_ESTIMATED),
)
LINE_CHARACTERS: Final = 300


@dataclass(slots=True)
class OutputReader:
    """Lines out of pieces that may end anywhere. `complaint` is the last that went wrong."""

    complaint: str = ""
    _tail: bytes = b""
    _last: str = ""

    def feed(self, piece: bytes) -> list[Said]:
        """Return what the lines that `piece` completes say."""
        *lines, self._tail = (self._tail + piece).split(b"\n")
        statements = (self._take(line.decode(errors="replace").rstrip()) for line in lines)
        return [statement for statement in statements if statement is not None]

    @property
    def last_words(self) -> str:
        """Say why the process ended, as far as its last lines show."""
        return (self._last or self.complaint)[:LINE_CHARACTERS]

    def _take(self, line: str) -> Said | None:
        match = _LINE.match(line)
        if match is None:
            # A traceback ends with its exception, and nothing follows it.
            self._last = line.strip() or self._last
            return None
        self._last = ""
        if match["level"] in {"WARNING", "ERROR", "CRITICAL"}:
            self.complaint = match["message"]
        return next(
            (statement for form, statement in _MEANINGS if form.match(match["message"])), None
        )
