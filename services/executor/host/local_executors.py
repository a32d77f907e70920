"""Which executors share this host: they see each other's processes, and leave them alone.

A label alone does not show it. A launcher may carry one node's environment to another host, where
no executor of that name would ever end what runs.
"""

import hashlib
import socket
from dataclasses import dataclass

from shared.logging import log


@dataclass(slots=True)
class LocalExecutorRegistry:
    """One installation's executors of this host, each known by a name that only a living one has.

    Two that do not share a network namespace do not see each other.
    """

    installation_id: str
    _socket: socket.socket | None = None

    def announce(self, node_id: str) -> None:
        """Announce this executor to the others, until this process ends or `close`."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.bind(self._name(node_id))
        except OSError as error:
            listener.close()
            log.warning("executor_announcement_failed", node_id=node_id, error=str(error))
            return
        self._socket = listener

    def close(self) -> None:
        """Withdraw this executor's announcement."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def is_here(self, node_id: str) -> bool:
        """Return whether the executor of that node runs on this host now."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(self._name(node_id))
            except OSError:
                return False
        return True

    def _name(self, node_id: str) -> bytes:
        whose = hashlib.sha256(f"{self.installation_id}\0{node_id}".encode()).hexdigest()
        return f"\0gpusteward-executor-{whose[:32]}".encode()
