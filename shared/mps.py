"""Whether NVIDIA's MPS control daemon runs on this host."""

import errno
import socket
from pathlib import Path
from typing import Final

DEFAULT_PIPE_DIR: Final = "/tmp/nvidia-mps"  # noqa: S108  # where NVIDIA's daemon has it by default


def daemon_listens(pipe_dir: str) -> bool:
    """Whether a daemon listens at its socket in CUDA_MPS_PIPE_DIRECTORY; a dead one leaves a file.

    Nothing connects: the kernel finds the listener before it finds that a datagram is not what it
    takes.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
        try:
            return probe.connect_ex(str(Path(pipe_dir) / "control")) in {0, errno.EPROTOTYPE}
        except OSError:  # a path that no socket can have
            return False
