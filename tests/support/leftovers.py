"""What a test has left behind: child processes, tasks, threads, listening sockets.

A test's guard is set up after the fixtures of a wider scope, whose processes it therefore leaves
alone, and is the last of its own scope to be torn down.
"""

import asyncio
import gc
import os
import shlex
import socket
import stat
import subprocess
import threading
import time
from asyncio import runners, tasks
from collections.abc import Callable, Iterator
from concurrent.futures import thread
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

# What is ending at the end of a test may take so long to be gone.
TIMEOUT_SECONDS: Final = 5.0

_owned: set[int] = set()


def has_an_owner(pid: int) -> None:
    """Its owner may outlive the test, and is looked for in its place."""
    _owned.add(pid)


@contextmanager
def nothing_is_left(timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[None]:
    """Raises AssertionError if more is there at the end than at the beginning."""

    def still(left: Callable[[], list[str]]) -> list[str]:
        """What is left although it had time to go."""
        deadline = time.monotonic() + timeout_seconds
        while (found := left()) and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        return found

    threads, sockets = _threads(), _sockets()
    with ExitStack() as watching:
        started = watching.enter_context(_started_processes())
        cancelled = watching.enter_context(_tasks_cancelled_at_the_end())
        yield
    left = [
        *still(
            lambda: [
                f"process {pid} ({command})"
                for pid, command in started
                if pid not in _owned and _is_our_child(pid)
            ]
        ),
        *still(lambda: [f"thread {each.name}" for each in _threads() - threads]),
        *still(lambda: _listening(_sockets() - sockets)),
        *(f"task {task.get_coro()!r}" for task in cancelled),
    ]
    assert not left, f"left behind: {', '.join(left)}"


@contextmanager
def _started_processes() -> Iterator[list[tuple[int, str]]]:
    """Their ids and commands, asyncio's too. To look for children afterwards would take
    milliseconds a test, and one that has just begun to execute has no command there yet.
    """
    started: list[tuple[int, str]] = []
    start = subprocess.Popen.__init__

    def start_and_record(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        command = self.args if isinstance(self.args, str) else shlex.join(map(os.fspath, self.args))
        started.append((self.pid, command))

    with patch.object(subprocess.Popen, "__init__", start_and_record):
        yield started


@contextmanager
def _tasks_cancelled_at_the_end() -> Iterator[list[asyncio.Task[object]]]:
    """Those that still ran when their event loop was closed, which cancels them silently."""
    found: list[asyncio.Task[object]] = []
    cancel_all = getattr(runners, "_cancel_all_tasks")  # noqa: B009  # no public place knows

    def record_and_cancel_all(loop: asyncio.AbstractEventLoop) -> None:
        found.extend(tasks.all_tasks(loop))
        cancel_all(loop)

    with patch.object(runners, "_cancel_all_tasks", record_and_cancel_all):
        yield found


def _threads() -> set[threading.Thread]:
    """Without those of a pool, which end when it is collected and a fixture may still hold it, and
    without daemons, which are made to end with their process.
    """
    pooled = thread._threads_queues  # noqa: SLF001  # no public place knows
    return {each for each in threading.enumerate() if each not in pooled and not each.daemon}


def _is_our_child(pid: int) -> bool:
    """Whether it lives and is still ours: its number may be another's by now."""
    with suppress(OSError):
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state not in {"Z", "X"} and int(parent) == os.getpid()
    return False


def _sockets() -> set[tuple[int, int]]:
    """Descriptor and inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # this runs twice a test
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            found.add((int(name), status.st_ino))
    return found


def _listening(sockets: set[tuple[int, int]]) -> list[str]:
    found = []
    for descriptor, _ in sockets:
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.append(f"listening socket {one.getsockname()}")
    return found
