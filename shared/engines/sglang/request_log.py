"""Requests in SGLang's log: `python/sglang/srt/utils/request_logger.py` of 0.5.

`--log-requests` says when each came and what it took, as text or as JSON lines.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import DecodeError, Struct, json

from shared.engines.request_log import MAX_OPEN, LoggedRequest, seconds_of, without_colours

# Of `[2026-02-13 09:29:32] Finish: obj=GenerateReqInput(rid='a', ...), out={'meta_info': {...}}`
_LINE: Final = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*\] (Receive|Finish): obj=")
_NAME: Final = re.compile(r"\brid='([^']{1,200})'")
_META: Final = "'meta_info': {"
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens")
_TIMES: Final = ("request_received_ts", "e2e_latency")


class _Event(Struct, frozen=True):
    timestamp: str
    event: str
    rid: Any = None
    out: dict[str, Any] = {}


class SglangLog:
    """One log of SGLang's. Of cached tokens it says how many, not which: they are blocks of one
    beginning that all have in common.
    """

    def __init__(self, block_tokens: int) -> None:
        self.skipped: Counter[str] = Counter()
        self._block_tokens = block_tokens
        self._came_at: dict[str, float] = {}

    def read(self, line: str) -> Iterator[LoggedRequest]:
        """Read as `LogReader.read` does."""
        if line.startswith("{"):
            yield from self._read_json(line)
            return
        match = _LINE.search(without_colours(line[:400]))
        if match is None:
            return
        at_seconds = seconds_of(match[1], "%Y-%m-%d %H:%M:%S")
        name = _NAME.search(line[:2000])
        if at_seconds is None or name is None:
            return
        if match[2] == "Receive":
            self._receive(name[1], at_seconds)
            return
        # Texts come before, and may have the same words.
        meta_text = line[max(0, line.rfind(_META)) :]
        matches = (
            (key, re.search(rf"'{key}': (\d{{1,12}}(?:\.\d{{1,9}})?)", meta_text))
            for key in (*_COUNTS, *_TIMES)
        )
        meta = {key: float(value[1]) for key, value in matches if value is not None}
        yield from self._finish(name[1], at_seconds, meta)

    def end(self) -> Iterator[LoggedRequest]:
        """Read as `LogReader.end` does."""
        self.skipped["without their end"] += len(self._came_at)
        return iter(())

    def _read_json(self, line: str) -> Iterator[LoggedRequest]:
        try:
            event = json.decode(line, type=_Event)
            at_seconds = datetime.fromisoformat(event.timestamp).timestamp()
        except (DecodeError, ValueError, OverflowError, RecursionError):
            return
        name = str(event.rid)
        if event.event == "request.received":
            self._receive(name, at_seconds)
        elif event.event == "request.finished":
            meta_info = event.out.get("meta_info")
            fields = meta_info if isinstance(meta_info, dict) else {}
            meta = {
                key: float(value)
                for key, value in fields.items()
                if key in {*_COUNTS, *_TIMES}
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            }
            yield from self._finish(name, at_seconds, meta)

    def _receive(self, name: str, at_seconds: float) -> None:
        self._came_at[name] = at_seconds
        if len(self._came_at) > MAX_OPEN:
            del self._came_at[next(iter(self._came_at))]
            self.skipped["without their end"] += 1

    def _finish(
        self, name: str, ended_seconds: float, meta: dict[str, float]
    ) -> Iterator[LoggedRequest]:
        came_at = self._came_at.pop(name, None)
        if not meta.get("prompt_tokens") or "completion_tokens" not in meta:
            self.skipped["without their lengths"] += 1
            return
        if came_at is None:
            came_at = ended_seconds - meta.get("e2e_latency", 0.0)
        num_input_tokens = int(meta["prompt_tokens"])
        cached_blocks = int(min(meta.get("cached_tokens", 0.0), num_input_tokens))
        yield LoggedRequest(
            at_seconds=came_at,
            num_input_tokens=num_input_tokens,
            num_output_tokens=int(meta["completion_tokens"]),
            blocks=tuple(range(cached_blocks // self._block_tokens)),
        )
