"""Choices about a platform to be started: its port, its fleet, its addresses."""

import re
import socket
from pathlib import Path
from typing import Final

import schemas
from schemas.errors import ErrorCode
from services.cli.failures import CommandFailed

EXAMPLES: Final = Path(schemas.__file__).parent / "examples"
_DEVICES: Final = Path("/dev")


def default_fleet() -> Path:
    """The fleet that is made up where there is none."""
    return EXAMPLES / "fleet.toml"


def has_gpu_devices(devices: Path = _DEVICES) -> bool:
    """Whether the kernel offers a GPU here, however its driver feels: a broken one counts."""
    if (devices / "dxg").exists():
        return True
    return any(re.fullmatch(r"nvidia\d+", path.name) for path in devices.glob("nvidia[0-9]*"))


def host_and_port(text: str) -> tuple[str, int]:
    """`10.0.0.1:4222` or `[::1]:4222`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"expected HOST:PORT, found {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def free_port_like(preferred: int, host: str = "127.0.0.1") -> int:
    """The preferred port if nobody listens on it, else one that the system chooses."""
    for port in (preferred, 0):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(found[0], socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(found[4])
                return int(probe.getsockname()[1])
        except OSError:
            continue
    return preferred
