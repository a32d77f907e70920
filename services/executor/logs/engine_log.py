"""What engines write, bounded, and addressed by how much was written before it.

An engine appends to the file itself, so its output never depends on this process: a pipe would
stall a measured engine as soon as a paused or busy executor left 64 KiB unread, and cost the
executor 10 ms of CPU a megabyte. A program that only appends cannot be asked to change files, so
the log is one file in which every byte lies at its offset among all that the engine ever wrote.
What is dropped from its beginning becomes a hole, and so does what a full disk could not take:
holes take no space, and an executor that has been killed finds every offset as it was.
`<name>.index` beside the file distinguishes holes from zeros.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.executor.logs import MAX_LINES, LogChunk, ReadLog
from services.executor.domain.log_lines import LINE_BYTES, Line, split_lines, within
from services.executor.journal import store
from services.executor.journal.journal import Journal
from services.executor.logs.sparse_file import first_data, free_before, write_all
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError

LOG_NAME: Final = "engine.log"
CHUNK_BYTES: Final = 384 * 1024
RETRY_SECONDS: Final = 1.0
TAIL_BYTES: Final = 512 * 1024
MAX_LOSSES: Final = 256
ROTATE_SECONDS: Final = 0.25


class LogIndex(Struct, frozen=True, kw_only=True):
    """`start`: what was written before is not kept. `lost`: from where to where the disk was full,
    in order.
    """

    start: int = 0
    lost: tuple[tuple[int, int], ...] = ()


class Excerpt(Struct, frozen=True, kw_only=True):
    """As in `LogChunk`; `is_last`: nothing is kept behind `next_offset`."""

    offset: int
    next_offset: int
    lines: tuple[str, ...]
    skipped_bytes: int = 0
    is_last: bool


@dataclass(slots=True, eq=False)
class EngineLog:
    """The log of one engine, in at most `limit_bytes` of disk; all methods may be called anywhere.

    Written by `append`, or by a process that has the file open in append mode: then `rotate` has to
    be called now and then, and the log may be larger by what the process writes in between.
    """

    path: Path
    limit_bytes: int
    monotonic: Callable[[], float] = time.monotonic
    _index: LogIndex = field(init=False)
    # Where the next byte lies; behind the file's size if the disk was full in the end.
    _end: int = field(init=False)
    _retry_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._index = _load_index(self.path)
        self._end = _size(self.path)

    @property
    def end(self) -> int:
        """Return how many bytes the engine has written, kept or not."""
        return max(self._end, _size(self.path))

    @property
    def start(self) -> int:
        """The offset of the first byte that is kept."""
        return self._index.start

    def append(self, data: bytes) -> None:
        """Keep it, or count it as lost while the disk is full; never raises.

        Takes a write into the page cache, and after `limit_bytes` / 2 once the making of a hole.
        """
        with self._lock:
            begin = self.end
            self._end = begin + len(data)
            if self.monotonic() < self._retry_at:
                return
            try:
                self._write(data, begin)
            except OSError:
                self._retry_at = self.monotonic() + RETRY_SECONDS

    def rotate(self) -> None:
        """Drop the oldest half once three quarters are used; never raises. Call it in a thread."""
        with self._lock, contextlib.suppress(OSError):
            if self._count_kept_bytes() > self.limit_bytes - self.limit_bytes // 4:
                self._drop_before(self._beginning_of_last(self.limit_bytes // 2))

    async def keep_bounded(self) -> None:
        """Rotate it now and then, until cancelled."""
        while True:
            await asyncio.to_thread(self.rotate)
            await asyncio.sleep(ROTATE_SECONDS)

    def link_from(self, path: Path) -> None:
        """Have it read at another path too: by an attempt that goes on with its engine."""
        for link, target in ((path, self.path), (_index_path(path), _index_path(self.path))):
            link.symlink_to(target)

    def tail(self, lines: int) -> str:
        """The last lines, and what is written of an unfinished one; nothing if there is no log."""
        texts: list[str] = []
        with self._lock:
            for begin, end in reversed(self._list_kept_ranges()):
                missing_count = lines - len(texts)
                if missing_count <= 0:
                    break
                last_lines, _ = self._last_lines(begin, end, missing_count, TAIL_BYTES, is_end=True)
                texts[:0] = [line.text or "" for line in last_lines]
        return "\n".join(texts)

    def last(self, max_lines: int, *, max_bytes: int = CHUNK_BYTES, is_ended: bool) -> Excerpt:
        """The last lines; without an unfinished one unless `is_ended`. Reads up to `max_bytes`."""
        with self._lock:
            kept = self._list_kept_ranges()
            begin, end = kept[-1] if kept else (self.end, self.end)
            lines, next_offset = self._last_lines(begin, end, max_lines, max_bytes, is_end=is_ended)
        return Excerpt(
            offset=lines[0].begin if lines else next_offset,
            next_offset=next_offset,
            lines=tuple(line.text or "" for line in lines),
            is_last=next_offset >= end,
        )

    def read(
        self, offset: int, max_lines: int, *, max_bytes: int = CHUNK_BYTES, is_ended: bool
    ) -> Excerpt:
        """Lines from `offset` on, or from the first byte behind it that is kept.

        An unfinished line is left out unless `is_ended`. Reads up to `max_bytes`.
        """
        with self._lock:
            requested_offset = min(offset, self.end)
            begin, data, is_range = self._bytes_from(
                requested_offset, max(max_bytes, 4 * LINE_BYTES)
            )
            is_file_end = begin + len(data) >= _size(self.path)
        split = split_lines(data, is_end=is_range and (is_ended or not is_file_end))
        lines = list(within(split, count=max_lines, size_bytes=max_bytes))
        next_offset = begin + lines[-1].end if lines else begin
        return Excerpt(
            offset=begin,
            next_offset=next_offset,
            lines=tuple(line.text for line in lines if line.text is not None),
            skipped_bytes=begin - requested_offset,
            is_last=is_file_end and next_offset == begin + len(data),
        )

    def read_bytes(self, offset: int, max_bytes: int) -> tuple[int, bytes]:
        """Return the kept bytes from `offset` on, up to the next loss, and the offset of the
        first.
        """
        with self._lock:
            begin, data, _ = self._bytes_from(min(offset, self.end), max_bytes)
        return begin, data

    def line_after(self, offset: int) -> int:
        """The beginning of the first line from `offset` on, if it is near, else `offset`."""
        begin, data = self.read_bytes(offset, LINE_BYTES)
        newline = data.find(b"\n")
        return begin + newline + 1 if newline >= 0 else begin

    def _write(self, data: bytes, begin: int) -> None:
        if self._count_kept_bytes() + len(data) > self.limit_bytes:
            room = self.limit_bytes // 2 - len(data)
            self._drop_before(self._beginning_of_last(room) if room > 0 else begin - room)
        with _open_file(self.path, os.O_WRONLY | os.O_CREAT) as descriptor:
            if (size := os.fstat(descriptor).st_size) < begin:
                self._record_loss(size, begin)
            first = max(begin, self._index.start)
            write_all(descriptor, data[first - begin :], first)

    def _record_loss(self, begin: int, end: int) -> None:
        """Recorded before anything is written behind it. Raises OSError."""
        earlier_losses = [lost for lost in self._index.lost if lost[0] < begin]
        if len(earlier_losses) >= MAX_LOSSES:
            self._drop_before(earlier_losses[MAX_LOSSES // 2][1])
            earlier_losses = [lost for lost in earlier_losses if lost[0] >= self._index.start]
        index = LogIndex(start=self._index.start, lost=(*earlier_losses, (begin, end)))
        _write_index(self.path, index)
        self._index = index

    def _drop_before(self, offset: int) -> None:
        """Recorded before it is done, so that no reader takes a hole for zeros. Raises OSError."""
        if offset < _size(self.path):
            position, data, _ = self._bytes_from(offset, min(LINE_BYTES, self.limit_bytes // 8))
            offset = position + data.find(b"\n") + 1
        lost = tuple((first, end) for first, end in self._index.lost if end > offset)
        self._index = LogIndex(start=offset, lost=lost)
        with contextlib.suppress(OSError):
            # On a full disk there is room for it only afterwards.
            _write_index(self.path, self._index)
        with _open_file(self.path, os.O_RDWR | os.O_CREAT) as descriptor:
            free_before(descriptor, min(offset, os.fstat(descriptor).st_size))

    def _list_kept_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of kept bytes, in order."""
        size = _size(self.path)
        ranges = []
        begin = min(self._index.start, size)
        for lost_begin, lost_end in self._index.lost:
            if begin < min(lost_begin, size):
                ranges.append((begin, min(lost_begin, size)))
            begin = max(begin, lost_end)
        if begin < size:
            ranges.append((begin, size))
        return ranges

    def _count_kept_bytes(self) -> int:
        return sum(end - begin for begin, end in self._list_kept_ranges())

    def _beginning_of_last(self, count: int) -> int:
        """The offset from which on so many bytes are kept."""
        for begin, end in reversed(self._list_kept_ranges()):
            if end - begin >= count:
                return end - count
            count -= end - begin
        return self._index.start

    def _bytes_from(self, offset: int, count: int) -> tuple[int, bytes, bool]:
        """Read up to `count` kept bytes from `offset` on.

        Returns where they begin, the bytes, and whether they reach up to a hole.
        """
        for begin, end in self._list_kept_ranges():
            if offset < end:
                position = max(begin, offset)
                data = self._pread(min(count, end - position), position)
                return position, data, position + len(data) == end
        return self.end, b"", True

    def _last_lines(
        self, begin: int, end: int, count: int, size_bytes: int, *, is_end: bool
    ) -> tuple[list[Line], int]:
        """The last lines between two offsets, placed by their offsets, and where they end."""
        position = max(begin, end - size_bytes)
        data = self._pread(end - position, position)
        if position > begin:
            newline = data.find(b"\n") + 1
            position, data = position + newline, data[newline:]
        split = list(split_lines(data, is_end=is_end))
        texts = [line for line in reversed(split) if line.text is not None]
        last = list(within(iter(texts), count=count, size_bytes=size_bytes))
        placed = [Line(text, position + first, position + stop) for text, first, stop in last]
        return placed[::-1], position + (split[-1].end if split else 0)

    def _pread(self, count: int, position: int) -> bytes:
        try:
            with _open_file(self.path, os.O_RDONLY) as descriptor:
                return os.pread(descriptor, count, position)
        except OSError:
            return b""


async def read_log(settings: ExecutorSettings, journal: Journal, query: ReadLog) -> LogChunk:
    """Answer for an attempt that runs, or has ended and is still kept. Raises RefusedError."""
    record = await journal.transact(lambda connection: store.attempt(connection, query.attempt_id))
    directory = settings.attempt_dir(query.attempt_id)
    is_ended = record is not None and record.outcome is not None
    if record is None or (is_ended and not directory.is_dir()):
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"nothing is kept of what attempt {query.attempt_id} wrote on {settings.node_id}",
            path="$.attempt_id",
        )
    excerpt = await asyncio.to_thread(
        _excerpt, directory / LOG_NAME, query.offset, query.max_lines, is_ended=is_ended
    )
    return LogChunk(
        attempt_id=query.attempt_id,
        offset=excerpt.offset,
        next_offset=excerpt.next_offset,
        lines=excerpt.lines,
        skipped_bytes=excerpt.skipped_bytes,
        is_complete=is_ended and excerpt.is_last,
    )


def _excerpt(path: Path, offset: int | None, max_lines: int, *, is_ended: bool) -> Excerpt:
    """Read beside the log's writer: again if what was read was dropped meanwhile."""
    count = min(max_lines, MAX_LINES)
    while True:
        log = EngineLog(path, 0)
        if offset is None:
            excerpt = log.last(count, is_ended=is_ended)
        else:
            excerpt = log.read(offset, count, is_ended=is_ended)
        if _load_index(path).start <= excerpt.offset:
            return excerpt


def _load_index(path: Path) -> LogIndex:
    try:
        index = msgspec.json.decode(_index_path(path).read_bytes(), type=LogIndex)
    except (OSError, msgspec.MsgspecError):
        index = LogIndex()
    try:
        with _open_file(path, os.O_RDONLY) as descriptor:
            # A file shorter than what was dropped of it has been emptied by another program.
            start = index.start if index.start <= os.fstat(descriptor).st_size else 0
            return msgspec.structs.replace(index, start=first_data(descriptor, start))
    except OSError:
        return index


def _write_index(path: Path, index: LogIndex) -> None:
    """Raises OSError; what was there before stays then."""
    target = _index_path(path)
    temporary = target.with_name(f"{target.name}.new")
    try:
        temporary.write_bytes(msgspec.json.encode(index))
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _open_file(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
