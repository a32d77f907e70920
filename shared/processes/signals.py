"""Signals to processes that are not our children, whose numbers may pass to others."""

import os
import signal
from collections.abc import Callable


def signal_if(is_meant: Callable[[int], bool], pid: int, sent: signal.Signals) -> None:
    """Signal a process, checked again while a descriptor holds its number against reuse."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_meant(pid):
            signal.pidfd_send_signal(descriptor, sent)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(descriptor)
