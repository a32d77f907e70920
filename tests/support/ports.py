"""Ports of 127.0.0.1 for servers that start a moment later, or once more."""

import secrets
import socket
from contextlib import suppress
from typing import Final

# Below those that the kernel gives to outgoing connections, which could take one meanwhile.
PORTS: Final = range(18_000, 32_000)


def free_port() -> int:
    """One that nobody listens on now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
