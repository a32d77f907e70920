"""The guard that every test has, at work."""

import asyncio
import re
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.support.leftovers import nothing_is_left


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """Instead of the guard itself, which would find what these tests leave to theirs."""


def left_by(test: Callable[[], object]) -> str:
    with (
        pytest.raises(AssertionError, match="left behind") as raised,
        nothing_is_left(timeout_seconds=0),
    ):
        test()
    return str(raised.value)


def test_a_process_that_was_waited_for_is_nothing() -> None:
    with nothing_is_left(timeout_seconds=0):
        subprocess.run(["true"], check=True)


def test_a_child_that_lives_is_named() -> None:
    started: list[subprocess.Popen[bytes]] = []

    message = left_by(lambda: started.append(subprocess.Popen(["sleep", "60"])))

    started[0].kill()
    started[0].wait()
    assert message == f"left behind: process {started[0].pid} (sleep 60)"


def test_a_thread_that_runs_is_named() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="endless")

    message = left_by(thread.start)

    end.set()
    thread.join()
    assert message == "left behind: thread endless"


def test_only_listening_socket_is_named() -> None:
    sockets: list[socket.socket] = []

    def leave_two() -> None:
        sockets.extend((socket.socket(), socket.create_server(("127.0.0.1", 0))))

    message = left_by(leave_two)

    listening = sockets[1]
    address = listening.getsockname()
    for each in sockets:
        each.close()
    assert message == f"left behind: listening socket {address}"


def test_task_ended_by_its_loop_is_named() -> None:
    forgotten: list[asyncio.Task[None]] = []

    async def forgetful() -> None:
        forgotten.append(asyncio.create_task(asyncio.sleep(60)))

    message = left_by(lambda: asyncio.run(forgetful()))

    assert forgotten[0].cancelled()
    assert re.fullmatch(r"left behind: task <coroutine object sleep at .*>", message)
