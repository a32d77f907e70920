"""Imports what services import, then starts each as a fork, which shares the imported pages.

`python -m shared.local_platform.supervisor.launcher_process DESCRIPTOR MODULE...`. Requests come on
the descriptor: a `Launch` in JSON with the log's descriptor; the fork answers with its process id.
It is the child of whoever started this process, who is a subreaper meanwhile.
"""

import ctypes
import gc
import importlib
import os
import runpy
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from shared.lifecycle import die_with_parent, trim_heap

READY: Final = b"ready"
REQUEST_BYTES: Final = 1 << 20
POLL_SECONDS: Final = 0.001
ROOM_VARIABLE: Final = "GPUSTEWARD_LAUNCHER_ROOM"  # for variables that only services have
ROOM_BYTES: Final = 8192
# First what decides which libraries the others import; last what anyio imports at its first use.
FIRST_MODULE: Final = "shared.skip_optional_imports"
LAST_MODULES: Final = ("anyio._backends._asyncio", "anyio._core._streams")


class Launch(Struct, frozen=True, kw_only=True):
    """What a fork is to be: `python -m MODULE` with this environment, in this directory."""

    argv: list[str]
    environment: dict[str, str]
    directory: str


def main() -> None:
    """Serve requests until the other end is closed; in a fork, run the module."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # A collection in a fork would write to every page; one here would leave holes in all of them,
    # which forks fill, each its own copy.
    gc.disable()
    import_modules([FIRST_MODULE, *sys.argv[2:], *LAST_MODULES])
    gc.freeze()
    trim_heap()
    requests.send(READY)
    if (launch := serve(requests)) is not None:
        gc.enable()
        runpy.run_module(launch.argv[2], run_name="__main__", alter_sys=True)


def import_modules(names: Sequence[str]) -> None:
    """Import them. What fails here fails in its fork again, which reports it in its own log."""
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)


def serve(requests: socket.socket) -> Launch | None:
    """Answer requests; return None at their end, and in each fork what it is to run."""
    supervisor_pid = os.getppid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 1)
        if not message:
            return None
        if fork_orphan():
            os.setsid()
            die_with_parent(parent_pid=supervisor_pid)
            with requests:
                requests.send(str(os.getpid()).encode())
            launch = msgspec.json.decode(message, type=Launch)
            become(launch, *descriptors)
            return launch
        for descriptor in descriptors:
            os.close(descriptor)


def fork_orphan() -> bool:
    """Fork a process whose parent ends at once; return True in it, once that has happened.

    Raises OSError where no process can be made.
    """
    if (between := os.fork()) != 0:
        if os.waitpid(between, 0)[1] != 0:
            raise OSError("expected to fork twice, the second fork failed")
        return False
    between = os.getpid()
    try:
        if os.fork() != 0:
            os._exit(0)
    except OSError:
        os._exit(1)
    while os.getppid() == between:
        time.sleep(POLL_SECONDS)
    return True


def become(launch: Launch, log_descriptor: int) -> None:
    """Take over what a new interpreter would have been started with."""
    for stream in (1, 2):
        os.dup2(log_descriptor, stream)
    os.close(log_descriptor)
    os.chdir(launch.directory)
    os.environ.clear()
    os.environ.update(launch.environment)
    sys.argv = launch.argv[2:]
    show_in_proc(launch)


def show_in_proc(launch: Launch) -> None:
    """Have /proc show the fork's own arguments and environment, by which others find it.

    They are written over what this process was started with. Where that is too short, they are cut.
    """
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        after_name = file.read().rpartition(b")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, after_name[45:49])  # of proc(5)
    _overwrite(arg_start, arg_end, launch.argv)
    # No pointer leads there any more, as every variable was removed.
    _overwrite(env_start, env_end, sorted(map("=".join, launch.environment.items()), key=_is_other))


def _overwrite(start: int, end: int, words: Sequence[str]) -> None:
    text = b"\0".join(map(os.fsencode, words))[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _is_other(variable: str) -> bool:
    return not variable.startswith("GPUSTEWARD_")


if __name__ == "__main__":
    main()
