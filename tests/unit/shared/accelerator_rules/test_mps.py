"""An MPS daemon is found by its socket, and what a dead one left is none."""

import socket
from pathlib import Path

import pytest

from shared.mps import daemon_listens


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_daemon_listens_as_long_as_it_lives(tmp_path: Path, kind: socket.SocketKind) -> None:
    before = daemon_listens(str(tmp_path))
    with socket.socket(socket.AF_UNIX, kind) as daemon:
        daemon.bind(str(tmp_path / "control"))
        daemon.listen()
        alive = daemon_listens(str(tmp_path))
        daemon.setblocking(False)
        with pytest.raises(BlockingIOError):
            daemon.accept()  # it was not disturbed
    dead = daemon_listens(str(tmp_path))

    assert (before, alive, dead) == (False, True, False)


def test_impossible_socket_path_has_no_daemon(tmp_path: Path) -> None:
    assert not daemon_listens(str(tmp_path / ("long" * 100)))
