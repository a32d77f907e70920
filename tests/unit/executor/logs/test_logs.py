"""What an executor keeps of what an engine writes, and what it says is missing."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.executor.attempts import AttemptOutcome
from schemas.executor.logs import ReadLog
from services.executor.domain.log_lines import (
    LINE_BYTES,
    LINE_OVERHEAD_BYTES,
    split_lines,
    within,
)
from services.executor.journal import store
from services.executor.journal.journal import Journal
from services.executor.logs.engine_log import EngineLog, read_log
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.testing import short_directory
from tests.support.worlds.executor import make_settings, make_start

LIMIT = 32 * 1024
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def make_log(path: Path, limit_bytes: int = MIB) -> EngineLog:
    return EngineLog(path, limit_bytes, Clock())


def write_as_process(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


@contextmanager
def files_at_most(size_bytes: int) -> Iterator[None]:
    """No file of this process grows further: its writes end short or fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def mounted(file_system: str, *options: str) -> Iterator[Path]:
    """A file system of our own; skips where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    with short_directory() as directory:
        mount = ["mount", "-t", file_system, *options, file_system, str(directory)]
        result = subprocess.run(mount, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            pytest.skip(f"no {file_system} can be mounted here: {result.stderr.strip()}")
        try:
            yield directory
        finally:
            subprocess.run(["umount", str(directory)], check=True)


def disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def kept(log: EngineLog) -> list[tuple[int, bytes]]:
    """Everything that is kept, piece by piece from the beginning."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        begin, data = log.read_bytes(offset, 10_000)
        if not data:
            assert begin == log.end
            return found
        found.append((begin, data))
        offset = begin + len(data)


Step = tuple[str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "process", "rotate", "restart", "full"]),
        st.integers(min_value=1, max_value=LIMIT),
    ),
    max_size=25,
)


def play(path: Path, given_steps: list[Step]) -> tuple[EngineLog, bytearray, set[int]]:
    """The log after these steps, everything that was written, and the offsets of what was lost."""
    log, written, lost = make_log(path, LIMIT), bytearray(), set[int]()
    for what, size in given_steps:
        line = b"%06d\n" % len(written)
        data = (line * (size // len(line) + 1))[:size]
        match what:
            case "append":
                log.append(data)
                written += data
            case "process" if log.end == (path.stat().st_size if path.exists() else 0):
                write_as_process(path, data)
                written += data
            case "full" if path.exists():
                with files_at_most(path.stat().st_size + size // 2):
                    log.append(data)
                written += data
                lost.update(range(path.stat().st_size, len(written)))
            case "restart" if log.end == path.stat().st_size if path.exists() else False:
                log = make_log(path, LIMIT)
            case _:
                log.rotate()
    return log, written, lost


@given(given_steps=steps)
def test_kept_bytes_keep_their_offset(
    given_steps: list[Step],
) -> None:
    with short_directory() as directory:
        path = directory / "engine.log"
        log, written, lost = play(path, given_steps)

        pieces = kept(log)

        assert log.end == len(written)
        for begin, data in pieces:
            assert data == written[begin : begin + len(data)]
            assert not lost.intersection(range(begin, begin + len(data)))
        found = {at for begin, data in pieces for at in range(begin, begin + len(data))}
        missing = set(range(len(written))) - found
        assert missing <= lost | set(range(log.start))
        again = make_log(path, LIMIT)
        assert kept(again) == pieces or again.end < log.end


@given(sizes=st.lists(st.integers(min_value=1, max_value=2 * LIMIT), max_size=12))
def test_log_stays_within_limit_and_keeps_newest(sizes: list[int]) -> None:
    with short_directory() as directory:
        log = make_log(directory / "engine.log", LIMIT)
        written = b""
        for size in sizes:
            data = (b"%07d\n" % len(written)) * (size // 8 + 1)
            log.append(data)
            written += data

            held = b"".join(data for _, data in kept(log))

            assert len(held) <= LIMIT
            assert disk_bytes(log.path) <= LIMIT + 2 * 4096
            assert written.endswith(held)
            assert len(held) >= min(len(written), LIMIT // 2 - 8)


def test_engine_writing_the_file_loses_no_offset(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = make_log(path, MIB // 8)
    program = (
        "import sys\n"
        "for number in range(40_000): print('line', number)\n"
        "print('x' * 10_000)\n"
        "print('the end')"
    )
    with path.open("ab") as output:
        engine = subprocess.Popen([sys.executable, "-c", program], stdout=output)
    while engine.poll() is None:
        log.rotate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(timeout=0.002)
    log.rotate()

    last = log.last(1, is_ended=True)

    lines = [f"line {number}\n" for number in range(40_000)]
    assert log.end == sum(map(len, lines)) + 10_001 + len("the end\n")
    assert last.lines == ("the end",)
    assert disk_bytes(path) <= MIB // 8 + 4096
    begin, data = log.read_bytes(0, MIB)
    assert 0 < begin == log.start
    assert "".join(lines).encode().find(data[:1000]) == begin


def test_lines_after_a_drop_begin_at_a_line(tmp_path: Path) -> None:
    log = make_log(tmp_path / "engine.log", LIMIT)
    for number in range(10_000):
        log.append(b"a line with the number %d\n" % number)

    excerpt = log.read(0, 10, is_ended=False)

    assert excerpt.skipped_bytes == excerpt.offset == log.start > 0
    assert all(line.startswith("a line with the number") for line in excerpt.lines)
    assert len(excerpt.lines) == 10


def test_full_disk_drops_and_counts_then_log_goes_on() -> None:
    with mounted("tmpfs", "-o", "size=128k") as directory:
        filler = directory / "filler"
        filler.write_bytes(b"f" * 64 * 1024)
        log = make_log(directory / "engine.log", MIB)
        line = b"x" * 999 + b"\n"
        for _ in range(200):
            log.append(line)
        size = log.path.stat().st_size

        assert 0 < size < 200_000
        assert log.end == 200_000
        filler.unlink()
        log.append(b"there is room again\n")

        excerpt = make_log(log.path).read(size, 10, is_ended=True)
        assert excerpt.lines == ("there is room again",)
        assert (excerpt.offset, excerpt.skipped_bytes) == (200_000, 200_000 - size)
        assert log.tail(2).splitlines()[-1] == "there is room again"
        assert len(log.tail(2).splitlines()) == 2


def test_unwritable_log_is_no_error(tmp_path: Path) -> None:
    log = make_log(tmp_path / "missing" / "engine.log")

    log.append(b"lost\n")
    log.rotate()

    assert (log.end, log.tail(5)) == (5, "")
    excerpt = log.read(0, 5, is_ended=True)
    assert (excerpt.skipped_bytes, excerpt.next_offset, excerpt.lines) == (5, 5, ())


def test_file_system_without_holes_keeps_newest() -> None:
    with mounted("ramfs") as directory:
        log = make_log(directory / "engine.log", LIMIT)
        lines = [b"line %d\n" % number for number in range(20_000)]
        for line in lines:
            log.append(line)

        begin, data = log.read_bytes(0, MIB)

        assert begin == log.start > 0
        assert len(data) <= LIMIT
        assert b"".join(lines)[begin:] == data
        assert disk_bytes(log.path) <= LIMIT + 4096


def test_emptied_log_is_read_from_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = make_log(path, LIMIT)
    for number in range(10_000):
        log.append(b"line %d\n" % number)
    os.truncate(path, 0)

    assert make_log(path, LIMIT).tail(5) == ""
    write_as_process(path, b"a new beginning\n")

    assert make_log(path, LIMIT).tail(5) == "a new beginning"


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(b"one\ntwo\r\n\nthree\n", ["one", "two", "", "three"], id="line ends"),
        pytest.param(b"\r 10%\r 20%\r\n", [" 10%", " 20%"], id="a progress bar"),
        pytest.param(b"a\xff\xfeb\n", ["a\ufffd\ufffdb"], id="invalid UTF-8"),
        pytest.param(b"\x1b[31mred\x1b[0m\x1b]0;title\x07\n", ["red"], id="colours and titles"),
        pytest.param(
            b"a\x00b\x07\x7f\tc\xc2\x9b\n", ["a\u2400b\u2407\u2421\tc\ufffd"], id="controls"
        ),
    ],
)
def test_lines_are_fit_to_be_shown(data: bytes, want: list[str]) -> None:
    assert [line.text for line in split_lines(data, is_end=False) if line.text is not None] == want


def test_line_sizes_count_message_overhead() -> None:
    lines = list(split_lines(b"first\nother\nthird\n", is_end=True))
    size_bytes = 2 * (len("first") + LINE_OVERHEAD_BYTES)

    found = [line.text for line in within(iter(lines), count=10, size_bytes=size_bytes)]

    assert found == ["first", "other"]


def test_a_line_of_the_longest_size_is_one_line() -> None:
    text = "x" * LINE_BYTES

    found = [line.text for line in split_lines(text.encode() + b"\nnext\n", is_end=True)]

    assert found == [text, "next"]


@pytest.mark.parametrize("data", [b"complete\nunfini", b"complete\nunfinished\r"])
def test_an_unfinished_line_waits_for_its_end(data: bytes, tmp_path: Path) -> None:
    log = make_log(tmp_path / "engine.log")
    log.append(data)

    running = log.read(0, 10, is_ended=False)
    ended = log.read(0, 10, is_ended=True)

    assert (running.lines, running.next_offset, running.is_last) == (("complete",), 9, False)
    assert ended.lines == ("complete", data[9:].decode().strip())
    assert ended.is_last
    assert log.last(10, is_ended=False).next_offset == 9


def test_long_line_is_split_between_characters(tmp_path: Path) -> None:
    log = make_log(tmp_path / "engine.log")
    text = "€" * 30_000
    log.append(text.encode() + b"\nafter\n")
    lines: list[str] = []
    offset, chunks = 0, 0

    while (excerpt := log.read(offset, 3, is_ended=False)).lines:
        lines += excerpt.lines
        offset, chunks = excerpt.next_offset, chunks + 1

    assert "".join(lines) == text + "after"
    assert max(len(line.encode()) for line in lines) <= LINE_BYTES
    assert chunks == 3
    assert offset == log.end


@given(
    chunks=st.lists(st.sampled_from([b"a", b"bc\n", b"\r", b"\n", b"\xff", b"z" * 40_000])),
    max_lines=st.integers(min_value=1, max_value=4),
)
def test_reading_on_neither_misses_nor_repeats(chunks: list[bytes], max_lines: int) -> None:
    with short_directory() as directory:
        log = make_log(directory / "engine.log")
        offset, ranges = 0, []
        for is_ended, chunk in [*((False, chunk) for chunk in chunks), (True, b"end")]:
            log.append(chunk)
            while True:
                excerpt = log.read(offset, max_lines, is_ended=is_ended)
                assert excerpt.offset == offset
                if excerpt.next_offset == offset:
                    break
                ranges.append((offset, excerpt.lines))
                offset = excerpt.next_offset

        assert offset == log.end
        assert "".join(text for _, lines in ranges for text in lines) == (
            b"".join(chunks).translate(None, b"\r\n").decode(errors="replace") + "end"
        )


def test_answer_always_fits_the_bus(tmp_path: Path) -> None:
    log = make_log(tmp_path / "engine.log", 4 * MIB)
    log.append(b"\xff" * MIB + b"\n" + b"\x01\n" * (MIB // 4))

    for excerpt in (
        log.read(0, 10_000, is_ended=False),
        log.read(MIB, 10_000, is_ended=False),
        log.last(10_000, is_ended=False),
    ):
        assert excerpt.lines
        assert sum(len(line.encode()) + 5 for line in excerpt.lines) < 512 * 1024 - 1000


@contextmanager
def journal_of(settings_: ExecutorSettings) -> Iterator[Journal]:
    journal = Journal(settings_.home / "journal.db")
    try:
        yield journal
    finally:
        journal.close_nowait()


async def test_log_is_readable_during_and_after_attempt(
    tmp_path: Path,
) -> None:
    node = make_settings("nats://127.0.0.1:1", tmp_path)
    start = make_start()
    directory = node.attempt_dir(start.attempt_id)
    ask = ReadLog(executor_id=node.node_id, attempt_id=start.attempt_id, max_lines=2)
    with journal_of(node) as journal:
        await journal.open()
        await journal.transact(lambda c: store.insert_attempt(c, start, utcnow()))
        nothing_yet = await read_log(node, journal, ask)
        directory.mkdir(parents=True)
        log = make_log(directory / "engine.log")
        log.append(b"one\ntwo\nthree\nunfinished")
        running = await read_log(node, journal, ask)
        await journal.transact(
            lambda c: store.mark_finished(c, start.attempt_id, AttemptOutcome.SUCCEEDED, utcnow())
        )
        ended = await read_log(node, journal, ask)
        first = await read_log(
            node, journal, ReadLog(executor_id="n", attempt_id=start.attempt_id, offset=4)
        )

        with pytest.raises(RefusedError, match="nothing is kept"):
            await read_log(node, journal, ReadLog(executor_id="n", attempt_id=uuid4()))
        log.path.unlink()
        directory.rmdir()
        with pytest.raises(RefusedError, match="nothing is kept"):
            await read_log(node, journal, ask)

    assert (nothing_yet.lines, nothing_yet.is_complete) == ((), False)
    assert (running.lines, running.offset, running.next_offset) == (("two", "three"), 4, 14)
    assert not running.is_complete
    assert ended.lines == ("three", "unfinished")
    assert (ended.next_offset, ended.is_complete) == (24, True)
    assert (first.lines, first.is_complete) == (("two", "three", "unfinished"), True)
