"""Finding what a platform started, by a mark in the environment that its descendants inherit.

A process that left its group or lost its parent still carries the mark.
"""

import asyncio
import os
import signal
import time
from typing import Final

import structlog

from shared.processes.child_process import POLL_SECONDS
from shared.processes.environment import processes_with, variables_of

MARK_VARIABLE: Final = "GPUSTEWARD_SUPERVISED_BY"
GONE_TIMEOUT_SECONDS: Final = 5.0

log = structlog.get_logger()


def find_marked_processes(mark: str) -> list[int]:
    """The living processes that carry the mark, this one left out. Always empty off Linux."""
    return processes_with(os.fsencode(f"{MARK_VARIABLE}={mark}"))


async def kill_marked(mark: str) -> list[int]:
    """SIGKILL every marked process, repeated until none is left; return whom it met."""
    met: list[int] = []
    deadline = time.monotonic() + GONE_TIMEOUT_SECONDS
    while pids := find_marked_processes(mark):
        for pid in pids:
            _kill(pid, os.fsencode(f"{MARK_VARIABLE}={mark}"))
        met.extend(pid for pid in pids if pid not in met)
        if time.monotonic() >= deadline:
            log.error("processes_outlived_sigkill", pids=pids)
            break
        await asyncio.sleep(POLL_SECONDS)
    return met


def _kill(pid: int, expected_mark: bytes) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Checked again through a descriptor that cannot come to mean another process.
        if expected_mark in variables_of(pid):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
