"""The lines of what an engine writes, fit to be shown anywhere."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# A longer line comes in pieces.
LINE_BYTES: Final = 16 * 1024
LINE_OVERHEAD_BYTES: Final = 5  # what msgpack needs for a string's length
# A progress bar goes back to the beginning of its line again and again.
_BREAK: Final = re.compile(rb"\r{0,8}\n|\r{1,8}")
_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
)
_CONTROLS: Final = (
    {code: 0x2400 + code for code in range(0x20) if code != ord("\t")}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)


class Line(NamedTuple):
    """A line and the bytes that it was made of, with what ended it. `text` None: only a break."""

    text: str | None
    begin: int
    end: int


def split_lines(data: bytes, *, is_end: bool) -> Iterator[Line]:
    """The lines of `data`, one after the other without a gap.

    What is not ended yet is left out unless `is_end`: nothing will ever follow.
    """
    position = 0
    while position < len(data):
        match = _BREAK.search(data, position)
        stop = match.start() if match is not None else len(data)
        if stop - position > LINE_BYTES:
            stop = end = _character_start(data, position + LINE_BYTES)
        elif match is None:
            if not is_end:
                return
            end = stop
        else:
            end = match.end()
            if end == len(data) and not match.group().endswith(b"\n") and not is_end:
                return  # a newline may follow
        is_bare_return = stop == position and not data.endswith(b"\n", position, end)
        yield Line(None if is_bare_return else make_printable(data[position:stop]), position, end)
        position = end


def make_printable(line: bytes) -> str:
    """A line as text: no control characters but tabs, no colours, invalid UTF-8 marked."""
    text = line.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROLS)


def within(lines: Iterator[Line], *, count: int, size_bytes: int) -> Iterator[Line]:
    """The first of `lines`: at least one, and no more than `count` or `size_bytes` of text."""
    line_count = used_bytes = 0
    for line in lines:
        if line.text is not None:
            used_bytes += len(line.text.encode()) + LINE_OVERHEAD_BYTES
            if line_count == count or (line_count and used_bytes > size_bytes):
                return
            line_count += 1
        yield line


def _character_start(data: bytes, position: int) -> int:
    """`position`, or the beginning of the UTF-8 character that it is in the middle of."""
    for back in range(4):
        if data[position - back] & 0xC0 != 0x80:
            return position - back
    return position
