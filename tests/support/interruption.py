"""Tests as a job in the background of a shell, which starts it with these signals ignored."""

import signal
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
