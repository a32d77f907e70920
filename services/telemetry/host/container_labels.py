"""The reservation of a container, queried at Docker's socket, or Podman's, where there is one.

A process that the executor starts has its reservation in its environment; this is for those that
cleared theirs, and for hosts where it may not be read. Each container is queried once, in a thread
of its own, so that a container engine that hangs holds up no reading.
"""

import os
import queue
import socket
import threading
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from shared.labels import RESERVATION_LABEL

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
    """`request` queues a container, `take_answers` returns the answers since its last call."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._requested: set[str] = set()
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[str, UUID]] = queue.SimpleQueue()
        self._request_count = self._done_count = 0
        self._thread: threading.Thread | None = None

    def request(self, container_id: str) -> None:
        """Only the first one of a container counts."""
        if self._path is None or container_id in self._requested:
            return
        if len(self._requested) >= _MAX_KNOWN:
            self._requested.clear()
        self._requested.add(container_id)
        self._request_count += 1
        self._requests.put(container_id)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._path,), daemon=True)
            self._thread.start()

    def take_answers(self) -> dict[str, UUID]:
        """Containers that belong to a reservation, each returned once."""
        ids: dict[str, UUID] = {}
        while not self._answers.empty():
            container_id, reservation_id = self._answers.get()
            ids[container_id] = reservation_id
        return ids

    @property
    def is_idle(self) -> bool:
        """Return True if every request is answered."""
        return self._request_count == self._done_count

    def _run(self, path: str) -> None:
        while True:
            container_id = self._requests.get()
            reservation_id = reservation_of_container(path, container_id)
            if reservation_id is not None:
                self._answers.put((container_id, reservation_id))
            self._done_count += 1


def reservation_of_container(path: str, container_id: str) -> UUID | None:
    """Ask the engine for a container's reservation; None without one, and where it does not answer
    in time.
    """
    try:
        _, _, body = _get(path, f"/containers/{container_id}/json").partition(b"\r\n\r\n")
        return UUID((_decoder.decode(body).Config.Labels or {})[RESERVATION_LABEL])
    except (OSError, msgspec.DecodeError, KeyError, ValueError):
        return None


def _get(path: str, resource: str) -> bytes:
    """Request by HTTP 1.0, in which an answer ends with its connection.

    http.client would be 4.8 MB more of the NVML child.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
        engine.settimeout(_TIMEOUT_SECONDS)
        engine.connect(path)
        engine.sendall(f"GET {resource} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        received = b""
        while len(received) < _MAX_BYTES and (part := engine.recv(65536)):
            received += part
        return received
