"""The SDK's way to a socket of this host, without the descriptor that it leaves open where there
is no listener.
"""

import socket
from typing import Any

from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.settimeout(self.timeout)
            opened.connect(self.unix_socket)
        except BaseException:
            opened.close()
            raise
        self.sock = opened


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        timeout: Any = self.timeout
        return _Connection(self.base_url, self.socket_path, timeout)


class UnixAdapter(UnixHTTPAdapter):
    """To be mounted in the place of the SDK's own; for one client, which asks one host."""

    def __init__(self, path: str, timeout_seconds: Any) -> None:
        super().__init__(f"http+unix://{path}", timeout_seconds)
        self._pool = _Pool("localhost", self.socket_path, timeout_seconds)

    def get_connection(self, url: Any, proxies: Any = None) -> Any:  # noqa: ARG002  # the SDK's
        return self._pool

    def close(self) -> None:
        self._pool.close()
        super().close()
