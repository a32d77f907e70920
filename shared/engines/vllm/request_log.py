"""Requests in vLLM's log: `vllm/entrypoints/logger.py` of 0.4 to 0.20.

`--enable-log-requests` says when each came, with the level DEBUG its prompt's tokens, and
`--enable-log-outputs` those of its answer.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from shared.engines.request_log import MAX_OPEN, LoggedRequest, seconds_of, without_colours

# Of `INFO 02-13 11:33:33 [logger.py:49] Received request chatcmpl-a2: params: ...`
_EVENTS: Final = ("Received request ", "Request ", "Generated response ")
_LINE: Final = re.compile(
    r"(?:INFO|DEBUG) (\d\d-\d\d \d\d:\d\d:\d\d) .*?"
    r"(Received request|Request|Generated response) ([\w.-]+)(?: details)?(?: \(([\w ]+)\))?:"
)
_MAX_TOKENS: Final = re.compile(r"\bmax_tokens=(\d+)")
_PROMPT_IDS: Final = "prompt_token_ids: ["
_ANSWER_IDS: Final = "output_token_ids: ["
_DELTA: Final = "streaming delta"
_HALF_YEAR_SECONDS: Final = 180 * 86_400.0
_YEAR_SECONDS: Final = 366 * 86_400.0


@dataclass(slots=True)
class _Open:
    at_seconds: float | None = None
    num_input_tokens: int | None = None
    blocks: tuple[Hashable, ...] = ()
    max_tokens: int | None = None
    num_output_tokens: int = 0


class VllmLog:
    """One log of vLLM's."""

    def __init__(self, block_tokens: int) -> None:
        self.skipped: Counter[str] = Counter()
        self._block_tokens = block_tokens
        self._open: dict[str, _Open] = {}
        self._latest = 0.0

    def read(self, line: str) -> Iterator[LoggedRequest]:
        """Read as `LogReader.read` does."""
        if not any(event in line for event in _EVENTS):
            return
        match = _LINE.search(without_colours(line[:2000]))
        if match is None:
            return
        time_text, event, name, stream = match.groups()
        request = self._open.setdefault(name, _Open())
        if event == "Generated response":
            ids = _read_ids(line, _ANSWER_IDS)
            if stream == _DELTA:
                request.num_output_tokens += len(ids or ())
                return
            if not request.num_output_tokens:
                request.num_output_tokens = len(ids or ())
            yield from self._close(name)
            return
        if (ids := _read_ids(line, _PROMPT_IDS)) is not None:
            request.num_input_tokens = len(ids)
            request.blocks = tuple(self._split(ids))
        if event == "Received request":
            request.at_seconds = self._time(time_text)
            most = _MAX_TOKENS.findall(line)
            request.max_tokens = int(most[-1][:9]) if most else None
        if len(self._open) > MAX_OPEN:
            yield from self._close(next(iter(self._open)))

    def end(self) -> Iterator[LoggedRequest]:
        """Read as `LogReader.end` does."""
        for name in list(self._open):
            yield from self._close(name)

    def _close(self, name: str) -> Iterator[LoggedRequest]:
        request = self._open.pop(name)
        num_output_tokens = request.num_output_tokens or request.max_tokens
        if request.at_seconds is None:
            self.skipped["without their beginning"] += 1
        elif not request.num_input_tokens:
            self.skipped["without the tokens of their prompt"] += 1
        elif num_output_tokens is None:
            self.skipped["without a length of their answer"] += 1
        else:
            yield LoggedRequest(
                at_seconds=request.at_seconds,
                num_input_tokens=request.num_input_tokens,
                num_output_tokens=num_output_tokens,
                blocks=request.blocks,
                is_answer_known=request.num_output_tokens > 0,
            )

    def _time(self, text: str) -> float | None:
        """Return seconds of a clock that has no year: it goes on where a new one begins."""
        seconds = seconds_of(f"2024-{text}", "%Y-%m-%d %H:%M:%S")
        if seconds is None:
            return None
        while seconds < self._latest - _HALF_YEAR_SECONDS:
            seconds += _YEAR_SECONDS
        self._latest = max(self._latest, seconds)
        return seconds

    def _split(self, ids: list[str]) -> Iterator[Hashable]:
        chain = 0
        for place in range(0, len(ids), self._block_tokens):
            chain = hash((chain, *ids[place : place + self._block_tokens]))
            yield chain


def _read_ids(line: str, label: str) -> list[str] | None:
    """Return the last list of tokens that follows; a text may have such words, too."""
    begin = line.rfind(label)
    end = line.find("]", begin)
    if begin < 0 or end < 0:
        return None
    inner = line[begin + len(label) : end]
    ids = [part.strip() for part in inner.split(",")] if inner.strip() else []
    return ids if all(map(str.isdecimal, ids)) else None
