"""What an engine's log says of its requests, without a word of them."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

MAX_OPEN: Final = 100_000  # requests of which the log has not said all yet
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A request at a time of the log's clock. `blocks` tell equal beginnings of prompts apart, in
    blocks of the size that was asked for; `is_answer_known` false: the length is the most that was
    asked for.
    """

    at_seconds: float
    num_input_tokens: int
    num_output_tokens: int
    blocks: tuple[Hashable, ...] = ()
    is_answer_known: bool = True


class LogReader(Protocol):
    """Reads one log, line by line. `skipped` counts requests by what is missing of them."""

    skipped: Counter[str]

    def read(self, line: str) -> Iterator[LoggedRequest]:
        """Yield the requests of which a line says the last."""

    def end(self) -> Iterator[LoggedRequest]:
        """Yield those of which no line came that says the last."""


LogReaderMaker = Callable[[int], LogReader]  # of blocks of so many tokens


def without_colours(line: str) -> str:
    return _COLOURS.sub("", line)


def seconds_of(text: str, form: str) -> float | None:
    """Return a time of a log in seconds; None for what is none."""
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
