"""A loop's clock that stands still while anything of the test computes, or waits for a processor.

By it the busiest machine is as fast as an idle one: what passes is only what was waited for, be it
a timer or something that hangs. A bound on it needs no slack for other work on the machine.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from selectors import SelectorKey
from typing import Any, Final
from unittest.mock import patch

# Looks at processes are this far apart: what runs in between for less may be counted as waiting.
STEP_SECONDS: Final = 0.02
Clock = Callable[[], float]
_RUNNABLE: Final = (b"R", b"D")  # D: in the kernel, mostly for a disk
_STATE, _PARENT, _THREADS = 0, 1, 17  # fields 3, 4 and 20 of proc_pid_stat(5)


class _Family:
    """This process and its descendants."""

    def __init__(self) -> None:
        self._newest = 0
        self._pids = {os.getpid()}

    def sleeps(self) -> bool:
        """All of them, but for the thread that asks."""
        self._add_new()
        asking = threading.get_native_id()
        for pid in tuple(self._pids):
            if (fields := _fields(str(pid))) is None:
                self._pids.discard(pid)
                continue
            threads = [pid] if fields[_THREADS] == b"1" else _ids(f"{pid}/task")
            for thread in threads:
                of_thread = fields if thread == pid else _fields(f"{pid}/task/{thread}")
                if thread != asking and of_thread and of_thread[_STATE] in _RUNNABLE:
                    return False
        return True

    def _add_new(self) -> None:
        # Its last field is the id given last to a process or thread; they grow until they wrap.
        newest = int(_read("loadavg").split()[-1])
        known, self._newest = self._newest, newest
        # One is given out before its process is to be seen: the last few are looked at again.
        started = range(max(1, known - 8), newest + 1) if 0 < known <= newest else sorted(_ids(""))
        for pid in started:
            fields = _fields(str(pid))
            if fields is not None and int(fields[_PARENT]) in self._pids:
                self._pids.add(pid)


def _ids(directory: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{directory}") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _fields(process: str) -> list[bytes] | None:
    """Of its stat, after the name, which may hold anything; None if it has ended."""
    try:
        return _read(f"{process}/stat").rpartition(b")")[2].split()
    except OSError:
        return None


def _read(path: str) -> bytes:
    """Hundreds a second: `Path.read_bytes` takes five times as long."""
    file = os.open(f"/proc/{path}", os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


@contextmanager
def idle_thread() -> Iterator[Clock]:
    """The same without a loop, for what blocks: counted by a thread, which may miss some."""
    seconds, ended = 0.0, threading.Event()

    def count() -> None:
        nonlocal seconds
        family = _Family()
        while not ended.is_set():
            slept, began = family.sleeps(), time.monotonic()
            if not ended.wait(STEP_SECONDS) and slept and family.sleeps():
                seconds += min(STEP_SECONDS, time.monotonic() - began)

    counting = threading.Thread(target=count)
    counting.start()
    try:
        yield lambda: seconds
    finally:
        ended.set()
        counting.join()


@contextmanager
def idle_time(*, timers: bool = True) -> Iterator[Clock]:
    """The clock of the running loop. Its timers are due by it, unless servers with a clock of their
    own have to agree with them: then it only measures.
    """
    loop: Any = asyncio.get_running_loop()
    selector = loop._selector  # noqa: SLF001  # it has no public name
    select, family, seconds = selector.select, _Family(), loop.time()

    def select_idly(timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        nonlocal seconds
        ends = None if timeout is None else loop.time() + timeout
        found: list[tuple[SelectorKey, int]] = select(0)
        while not found and (ends is None or loop.time() < ends):
            began, slept, looked = time.monotonic(), family.sleeps(), time.monotonic()
            step = STEP_SECONDS if ends is None else min(STEP_SECONDS, ends - loop.time())
            found = select(max(0.0, step))
            if slept and (found or family.sleeps()):
                # A timer that is due while this looks is not held up by it.
                longest = step if timers else STEP_SECONDS
                seconds += min(longest, time.monotonic() - (looked if timers or found else began))
        return found

    with (
        patch.object(selector, "select", select_idly),
        patch.object(loop, "time", (lambda: seconds) if timers else loop.time),
    ):
        yield lambda: seconds
