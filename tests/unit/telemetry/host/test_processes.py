"""What is known of a process, as long as it is the same process."""

import os
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from uuid import UUID

import pytest

from services.telemetry.host import processes
from services.telemetry.host.container_labels import ContainerLabels, engine_socket
from services.telemetry.host.processes import ProcessFacts, ProcessTable
from shared.testing import short_directory

RESERVATION = UUID("0191d2a0-0000-7000-8000-000000000001")


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_process_is_read_once_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, *, has_descriptors: bool
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    table = ProcessTable()
    environ = {**os.environ, "GPUSTEWARD_RESERVATION": str(RESERVATION)}
    with subprocess.Popen(["cat"], env=environ, stdin=PIPE, stdout=PIPE, bufsize=0) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        # What it sends back shows that it runs: its environment is not there before.
        worker.stdin.write(b"!")
        worker.stdout.read(1)
        first = table.facts(worker.pid)
        reads: list[str] = []
        monkeypatch.setattr(processes, "_name", lambda _: reads.append("name"))
        table.forget_ended([worker.pid])
        again = table.facts(worker.pid)
        worker.kill()
    table.forget_ended([worker.pid])

    assert (first.name, first.reservation_id) == ("cat", RESERVATION)
    assert again == first
    assert reads == []
    assert table.facts(worker.pid).name is None


def test_pid_without_process_is_not_remembered() -> None:
    assert ProcessTable().facts((1 << 22) + 1) == ProcessFacts(None, None, None)


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(
            b'HTTP/1.0 200 OK\r\n\r\n{"Config":{"Labels":{"gpusteward.reservation":"%s"}}}'
            % str(RESERVATION).encode(),
            RESERVATION,
            id="labelled",
        ),
        pytest.param(
            b'HTTP/1.0 200 OK\r\n\r\n{"Config":{"Labels":null}}', None, id="without labels"
        ),
        pytest.param(
            b'HTTP/1.0 404 Not Found\r\n\r\n{"message":"No such container"}', None, id="gone"
        ),
        pytest.param(b"", None, id="silent"),
    ],
)
def test_unreserved_process_has_its_container(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, want: UUID | None
) -> None:
    monkeypatch.setattr(processes, "container_of", lambda _: ID)
    with short_directory() as directory, engine_answering(directory / "docker.sock", answer) as at:
        labels = ContainerLabels(engine_socket({"DOCKER_HOST": f"unix://{at}"}))
        table = ProcessTable(labels)
        before = table.facts(os.getpid())
        wait_until(lambda: labels.is_idle)
        table.forget_ended([os.getpid()])
        after = table.facts(os.getpid())

    assert (before.container_id, before.reservation_id) == (ID, None)
    assert after.reservation_id == want


@contextmanager
def engine_answering(path: Path, answer: bytes) -> Iterator[Path]:
    """A container engine that knows one answer."""

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = self.rfile.readline()
            if f"/containers/{ID}/json".encode() in asked:
                self.wfile.write(answer)

    with socketserver.UnixStreamServer(str(path), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def wait_until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.005)
