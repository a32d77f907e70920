"""Which executors share this host: they see each other's processes, and leave them alone.

A label alone does not show it. A launcher may carry one node's environment to another host, where
no executor of that name would ever end what runs.
"""

import hashlib
import socket
from dataclasses import dataclass

from shared.logging import log


@dataclass(slots=True)
class Neighbours:
    """One installation's executors of this host, each known by a name that only a living one has.

    Two that do not share a network namespace do not see each other.
    """

    installation_id: str
    _own: socket.socket | None = None

    def announce(self, node_id: str) -> None:
        """Be found by the others, until this process ends or `close`."""
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            own.bind(self._name(node_id))
        except OSError as error:
            own.close()
            log.warning("not_announced", node_id=node_id, error=str(error))
            return
        self._own = own

    def close(self) -> None:
        """Be found no longer."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def is_here(self, node_id: str) -> bool:
        """Whether the executor of that node runs on this host now."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(self._name(node_id))
            except OSError:
                return False
        return True

    def _name(self, node_id: str) -> bytes:
        whose = hashlib.sha256(f"{self.installation_id}\0{node_id}".encode()).hexdigest()
        return f"\0gpusteward-executor-{whose[:32]}".encode()
