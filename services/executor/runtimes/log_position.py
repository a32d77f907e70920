"""Where in a container's log a reader is, so that it goes on there after a break.

A container engine or a kubelet is asked for everything from a second on, and each piece that it
sends begins with its time in nanoseconds. Pieces of one long line share a time, so they are
counted. A kubelet writes times in its own zone.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{9}(Z|[+-]\d\d:\d\d) ")


@dataclass(slots=True)
class LogPosition:
    """`begin` before each stream, then `admit` every piece of it in order."""

    _last: bytes = b""
    _count: int = 0
    _to_skip: int = 0
    _is_resuming: bool = False

    def begin(self) -> int | None:
        """The second to ask from, counted since 1970; None to ask for the whole log."""
        self._is_resuming = bool(self._last)
        self._to_skip = self._count
        stamp = _STAMP.match(self._last)
        if stamp is None:
            return None
        written = datetime.fromisoformat(f"{stamp[1].decode()}{stamp[2].decode()}")
        return max(1, int(written.timestamp()))

    def admit(self, piece: bytes) -> bytes:
        """Return the new part of a piece, without its time."""
        match = _STAMP.match(piece)
        if match is None:
            return piece
        stamp = match[0]
        if self._is_resuming:
            if stamp < self._last:
                return b""
            if stamp == self._last and self._to_skip:
                self._to_skip -= 1
                return b""
            self._is_resuming = False
        if stamp == self._last:
            self._count += 1
        else:
            self._last, self._count = stamp, 1
        return piece[match.end() :]
