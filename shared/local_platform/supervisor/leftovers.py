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


def marked_processes(mark: str) -> list[int]:
    """The living processes that carry the mark, this one left out. Always empty off Linux."""
    return processes_with(os.fsencode(f"{MARK_VARIABLE}={mark}"))


async def kill_marked(mark: str) -> list[int]:
    """SIGKILL every marked process, repeated until none is left; return whom it met."""
    met: list[int] = []
    deadline = time.monotonic() + GONE_TIMEOUT_SECONDS
    while found := marked_processes(mark):
        for pid in found:
            _kill(pid, os.fsencode(f"{MARK_VARIABLE}={mark}"))
        met.extend(pid for pid in found if pid not in met)
        if time.monotonic() >= deadline:
            log.error("processes_outlived_sigkill", pids=found)
            break
        await asyncio.sleep(POLL_SECONDS)
    return met


def _kill(pid: int, wanted: bytes) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Checked again through a descriptor that cannot come to mean another process.
        if wanted in variables_of(pid):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
