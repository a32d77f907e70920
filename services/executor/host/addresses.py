"""Where engines of this host are reached from other nodes."""

import asyncio
import contextlib
import socket
from collections.abc import Iterable

import psutil

from services.executor.settings import ExecutorSettings
from shared.host_header import is_loopback
from shared.nats_addresses import NatsAddress, read_nats_addresses


async def engine_address(settings: ExecutorSettings) -> str | None:
    """The set one, else the own one; None if there is no way to the bus."""
    if settings.address:
        return settings.address
    return await asyncio.to_thread(own_address, settings.nats_url)


def own_address(nats_url: str) -> str | None:
    """The local address that packets to the bus come from; None if there is no way to it.

    Nothing is sent, but names are resolved, which may take seconds. On loopback only where all
    servers of the bus are, because other nodes do not reach that.
    """
    on_loopback = None
    for server in read_nats_addresses(nats_url):
        address = _address_towards(server)
        if address is not None and not is_loopback(address):
            return address
        on_loopback = on_loopback or address
    return on_loopback


def _address_towards(server: NatsAddress) -> str | None:
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_DGRAM
        ):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def free_port_at(address: str) -> int:
    """A port without a listener at this moment, at `address` where that is one of this host."""
    try:
        return free_port(address)
    except OSError:
        return free_port("")  # others reach us by an address that is translated on the way


def free_port(address: str = "127.0.0.1") -> int:
    """A port of this address without a listener at this moment. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def listens_on(port: int, pids: Iterable[int]) -> bool:
    """Return whether one of these processes has the listening TCP socket of `port` on this host."""
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            sockets = psutil.Process(pid).net_connections("tcp")
            if any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets):
                return True
    return False
