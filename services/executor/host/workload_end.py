"""Ending what an attempt started, within a time limit.

Apart from finding and killing it: the guard beside every executor has neither event loop nor log.
"""

import asyncio
import signal
import time
from functools import partial
from typing import Final

from services.executor.host.processes import ProcessMark, WorkloadLabel, is_of, running_workload
from shared.logging import log
from shared.processes.signals import signal_if

POLL_SECONDS: Final = 0.05
COMPLAIN_SECONDS: Final = 5.0


async def end_workload(
    label: WorkloadLabel, marks: tuple[ProcessMark, ...] = (), *, grace_seconds: float = 0.0
) -> None:
    """Return once nothing of the workload runs: SIGTERM, `grace_seconds`, then SIGKILL, repeated.

    Takes as long as the kernel needs; complains in the log meanwhile.
    """
    kill_at = time.monotonic() + grace_seconds
    complain_at = kill_at + COMPLAIN_SECONDS
    signalled_pids: set[int] = set()
    is_ours = partial(is_of, label=label, marks=marks)
    while remaining_pids := await asyncio.to_thread(running_workload, label, marks):
        now = time.monotonic()
        for pid in remaining_pids:
            if now >= kill_at:
                signal_if(is_ours, pid, signal.SIGKILL)
            elif pid not in signalled_pids:
                signalled_pids.add(pid)
                signal_if(is_ours, pid, signal.SIGTERM)
        if now >= complain_at:
            complain_at = now + COMPLAIN_SECONDS
            log.error(
                "workload_outlives_sigkill",
                reservation_id=str(label.reservation_id),
                pids=remaining_pids,
            )
        await asyncio.sleep(POLL_SECONDS)
