"""`python -m services.telemetry.sources.nvml.child`, started by `probe.py`."""

import os
import sys

from services.telemetry.sources.nvml.child.library_state import LibraryState
from services.telemetry.sources.nvml.child.server import ProbeServer
from shared.lifecycle import die_with_parent, give_back_memory


def main() -> None:
    """Serve on stdin and stdout; what the library prints goes to stderr instead."""
    parent_pid, rescues, engine_socket = sys.argv[1:4]
    die_with_parent(parent_pid=int(parent_pid))
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    give_back_memory()
    ProbeServer(LibraryState(engine_socket or None), replies, int(rescues)).run()


if __name__ == "__main__":
    main()
