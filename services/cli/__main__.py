"""The command's entry: Ctrl-C ends it with 130 and no traceback, from its first moment on."""

import os
import signal


def _leave(*_: object) -> None:
    """Exit at once: commands that have something to put in order handle SIGINT
    (`interruption.py`).
    """
    if os.isatty(2):
        os.write(2, b"\n")
    os._exit(130)


def main() -> None:
    """Run the command that the arguments name."""
    # Not where it is ignored, as it is in a background job of a shell.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from services.cli.command_line import main as run

    run()


if __name__ == "__main__":
    main()
