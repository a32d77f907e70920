"""The environment that a process was started with, by which its owner is known.

Its descendants inherit it, also those that left its group or lost their parent.
"""

import os
import sys


def variables_of(pid: int) -> list[bytes]:
    """Read a process's variables as `NAME=value`; empty for a zombie, and where they are
    unreadable.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  # pathlib costs memory
            return file.read().split(b"\0")
    except OSError:
        return []


def processes_with(variable: bytes) -> list[int]:
    """The living processes that carry `NAME=value`, this one left out. Always empty off Linux."""
    if sys.platform != "linux":
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # as above
    return [pid for pid in pids if pid != os.getpid() and variable in variables_of(pid)]
