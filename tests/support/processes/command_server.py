"""Runs `gpusteward` in forks of a process that has imported its libraries.

One message for a command: its arguments and environment as JSON, with the descriptors of
its standard streams and one on which its process id is answered, then how it ended.
"""

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from services.cli.__main__ import main
from services.cli.command_line import FUNCTIONS

# All commands, and what takes longest to import of what they import only when they run.
PREPARED: Final = (
    "aiohttp",
    "asyncpg",
    "rich.console",
    "rich.live",
    "rich.progress",
    "rich.table",
    "textual.app",
    "textual.widgets",
    "shared.client.http",
    *FUNCTIONS,
)
MESSAGE_BYTES: Final = 1 << 17


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Until nobody asks any more; a fork returns with the command that it is to be."""
    running: dict[int, tuple[int, int]] = {}  # process id and where to answer, by pidfd
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    pid, answers = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    status = os.waitpid(pid, 0)[1]
                    # Who asked may have gone: a test that failed.
                    with suppress(OSError), os.fdopen(answers, "w") as answer:
                        answer.write(f"{os.waitstatus_to_exitcode(status)}\n")
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
                if not message:
                    for pid, _ in running.values():
                        os.kill(pid, signal.SIGKILL)  # they are in sessions of their own
                    return None
                if (pid := os.fork()) == 0:
                    become(descriptors)
                    return dict(json.loads(message))
                for each in descriptors[:3]:
                    os.close(each)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = (pid, descriptors[3])
                selector.register(pidfd, selectors.EVENT_READ)


def become(descriptors: list[int]) -> None:
    """What a new interpreter has: its standard streams and no other descriptor, its handlers.

    In a session of its own, as the server's terminal is not the command's.
    """
    os.setsid()
    answers = descriptors[3]
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = _stream(0, "r", "<stdin>")
    sys.stdout = _stream(1, "w", "<stdout>")
    sys.stderr = _stream(2, "w", "<stderr>", errors="backslashreplace")
    os.write(answers, f"{os.getpid()}\n".encode())
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _stream(number: int, mode: str, name: str, errors: str = "strict") -> Any:
    stream: Any = open(number, mode, errors=errors, closefd=False)  # noqa: SIM115  # as Python
    stream.buffer.raw.name = name
    stream.reconfigure(line_buffering=stream.isatty() or name == "<stderr>")
    return stream


def run(command: dict[str, Any]) -> None:
    """As `python -m services.cli` does."""
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv = ["gpusteward", *command["arguments"]]
    main()


if __name__ == "__main__":
    # Ctrl-C is for whoever asks, who ends this by leaving.
    signal.signal(signal.SIGINT, lambda *_: None)
    for name in PREPARED:
        importlib.import_module(name)
    gc.freeze()  # a collection in a fork would copy all of it
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        run(asked)
