"""The reservation of a container, asked of Docker's socket, or Podman's, where there is one.

A process that the executor starts tells its reservation in its environment; this is for those that
cleared theirs, and for hosts where it may not be read. It is asked once per container, by a thread
of its own, so that an engine that hangs holds up no reading.
"""

import os
import queue
import socket
import threading
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

LABEL: Final = "gpusteward.reservation"
_SOCKETS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
_TIMEOUT_SECONDS: Final = 2.0
_MAX_BYTES: Final = 4 << 20
_MAX_KNOWN: Final = 1024


class _Config(msgspec.Struct):
    Labels: dict[str, str] | None = None


class _Container(msgspec.Struct):
    Config: _Config


_decoder: Final = msgspec.json.Decoder(_Container)


def engine_socket(environ: Mapping[str, str]) -> str | None:
    """The socket of this host's container engine, if it is there and may be used."""
    host = environ.get("DOCKER_HOST", "")
    paths = (host.removeprefix("unix://"),) if host.startswith("unix://") else _SOCKETS
    return next((path for path in paths if os.access(path, os.R_OK | os.W_OK)), None)


class ContainerLabels:
    """Answers come later: `ask` notes the question, `answered` gives what came in since."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._asked: set[str] = set()
        self._questions: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, UUID]] = queue.SimpleQueue()
        self._put = self._done = 0
        self._thread: threading.Thread | None = None

    def ask(self, container_id: str) -> None:
        """Find out about a container, once."""
        if self._path is None or container_id in self._asked:
            return
        if len(self._asked) >= _MAX_KNOWN:
            self._asked.clear()
        self._asked.add(container_id)
        self._put += 1
        self._questions.put(container_id)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._path,), daemon=True)
            self._thread.start()

    def answered(self) -> dict[str, UUID]:
        """Containers that turned out to belong to a reservation, each told once."""
        found: dict[str, UUID] = {}
        while not self._answers.empty():
            container_id, reservation_id = self._answers.get()
            found[container_id] = reservation_id
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was asked is open."""
        return self._put == self._done

    def _run(self, path: str) -> None:
        while True:
            container_id = self._questions.get()
            reservation_id = reservation_of_container(path, container_id)
            if reservation_id is not None:
                self._answers.put((container_id, reservation_id))
            self._done += 1


def reservation_of_container(path: str, container_id: str) -> UUID | None:
    """Ask the engine; None for what it does not know, does not say, or does not say in time."""
    try:
        _, _, body = _get(path, f"/containers/{container_id}/json").partition(b"\r\n\r\n")
        return UUID((_decoder.decode(body).Config.Labels or {})[LABEL])
    except (OSError, msgspec.DecodeError, KeyError, ValueError):
        return None


def _get(path: str, resource: str) -> bytes:
    """By HTTP 1.0, in which an answer ends with its connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.settimeout(_TIMEOUT_SECONDS)
        engine.connect(path)
        engine.sendall(f"GET {resource} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        received = b""
        while len(received) < _MAX_BYTES and (part := engine.recv(65536)):
            received += part
        return received
