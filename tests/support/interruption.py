"""Tests as a job in the background of a shell, which starts it with these signals ignored."""

import signal
from pathlib import Path
from typing import Final

IGNORED_IN_BACKGROUND: Final = (signal.SIGINT, signal.SIGQUIT)


def let_children_be_interrupted() -> None:
    """What is ignored is inherited, by every engine and command that a test starts.

    With a handler of its own this process ignores it as before, but its children start with the
    default.
    """
    for number in IGNORED_IN_BACKGROUND:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pending_signals(pid: int) -> set[int]:
    """Those sent to a process that it has not taken; one that is sent again is still one."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = int(status.partition("\nShdPnd:")[2].split()[0], 16)
    return {number for number in signal.valid_signals() if pending >> (number - 1) & 1}
