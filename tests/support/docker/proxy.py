"""What lies between an executor and its container engine, and misbehaves as a test wants.

Each connection is passed on byte by byte; what is done to one is decided by its request line.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_REQUEST: Final = re.compile(rb"(?:GET|POST|DELETE|PUT|HEAD) [^\r]*")
_POLL_SECONDS: Final = 0.01
_PIECE_BYTES: Final = 1 << 16


class DockerProxy:
    """A socket before another one. `requests` are the lines that came, in order."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path = path
        self.requests: list[str] = []
        self._upstream = upstream
        self._frozen = threading.Event()
        self._refused: dict[str, str] = {}
        self._before: list[tuple[str, Callable[[], None]]] = []
        self._after: list[tuple[str, Callable[[], None]]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        """What `DOCKER_HOST` would be."""
        return f"unix://{self.path}"

    @property
    def is_frozen(self) -> bool:
        """Whether nothing passes any more."""
        return self._frozen.is_set()

    def freeze(self) -> None:
        """Let nothing pass from now on, as an engine that hangs."""
        self._frozen.set()

    def thaw(self) -> None:
        """Let everything pass again, also what came meanwhile."""
        self._frozen.clear()

    def refuse(self, pattern: str, message: str) -> None:
        """Answer requests like this with status 500, instead of passing them on."""
        self._refused[pattern] = message

    def refuse_nothing(self) -> None:
        """Pass everything on again."""
        self._refused.clear()

    def before(self, pattern: str, act: Callable[[], None]) -> None:
        """Act once, when a request like this comes, before it is passed on."""
        self._before.append((pattern, act))

    def after_success(self, pattern: str, act: Callable[[], None]) -> None:
        """Act once, when a request like this has succeeded, before its answer is passed on."""
        self._after.append((pattern, act))

    def close(self) -> None:
        """Take no connection any more."""
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        line = ""
        with client, socket.socket(socket.AF_UNIX) as engine, suppress(OSError):
            engine.connect(str(self._upstream))

            def answer() -> None:
                with suppress(OSError):
                    while piece := engine.recv(_PIECE_BYTES):
                        if piece.startswith(b"HTTP/1.1 2"):
                            self._act(self._after, line)
                        self._wait()
                        client.sendall(piece)
                for each in (client, engine):
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=answer, daemon=True).start()
            while piece := client.recv(_PIECE_BYTES):
                if found := _REQUEST.match(piece):
                    line = found[0].decode()
                    self.requests.append(line)
                    self._act(self._before, line)
                    if (message := self._refusal(line)) is not None:
                        client.sendall(message)
                        return
                self._wait()
                engine.sendall(piece)

    def _act(self, actions: list[tuple[str, Callable[[], None]]], line: str) -> None:
        for action in tuple(actions):
            if re.search(action[0], line):
                with suppress(ValueError):
                    actions.remove(action)
                    action[1]()

    def _refusal(self, line: str) -> bytes | None:
        for pattern, message in tuple(self._refused.items()):
            if re.search(pattern, line):
                body = b'{"message": "%s"}' % message.encode()
                head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
                return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        return None

    def _wait(self) -> None:
        while self._frozen.is_set():
            time.sleep(_POLL_SECONDS)


@contextmanager
def docker_proxy(path: Path, upstream: Path) -> Iterator[DockerProxy]:
    """A proxy, closed again; what it holds back is let go."""
    proxy = DockerProxy(path, upstream)
    try:
        yield proxy
    finally:
        proxy.thaw()
        proxy.close()
