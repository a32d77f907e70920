"""What passes over a network interface: which TCP connections began with anything but TLS."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.support.tls_relay import SSL_REQUEST

ALL_PROTOCOLS: Final = 3  # ETH_P_ALL
# Of Linux's headers: Python's socket has no names for them.
PACKET: Final = 263
ADD_MEMBERSHIP: Final = 1
RECEIVE_BUFFER_FORCE: Final = 33
BUFFER_BYTES: Final = 32 << 20
ETHERNET_BYTES: Final = 14
IPV4: Final = b"\x08\x00"
TCP: Final = 6
SYN: Final = 2
HANDSHAKE: Final = b"\x16\x03"

Direction = tuple[str, int, str, int]


@dataclass(slots=True)
class Capture:
    """`plain` are the first bytes of directions that are no TLS; `ports` those that were reached.

    Only connections count that began while we looked.
    """

    plain: dict[Direction, bytes] = field(default_factory=dict)
    ports: set[int] = field(default_factory=set)
    _new: set[Direction] = field(default_factory=set)

    def see(self, frame: bytes) -> None:
        if frame[12:14] != IPV4 or frame[ETHERNET_BYTES + 9] != TCP:
            return
        packet = frame[ETHERNET_BYTES:]
        length, header = int.from_bytes(packet[2:4]), (packet[0] & 15) * 4
        source, target = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
        segment = packet[header:length]
        ports = int.from_bytes(segment[:2]), int.from_bytes(segment[2:4])
        direction = source, ports[0], target, ports[1]
        if segment[13] & SYN:
            self._new.add(direction)
            return
        payload = segment[(segment[12] >> 4) * 4 :]
        if direction not in self._new or not payload:
            return
        if payload in {SSL_REQUEST, b"S"}:
            return  # of Postgres, before TLS
        self._new.discard(direction)
        self.ports.add(min(ports))
        if not payload.startswith(HANDSHAKE):
            self.plain[direction] = payload[:60]


@contextmanager
def capture(interface: str) -> Iterator[Capture]:
    """Look at an interface for the block; takes root."""
    seen = Capture()
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    listener.bind((interface, 0))
    # Or frames between two containers pass by.
    promiscuous = struct.pack("iHH8s", socket.if_nametoindex(interface), 1, 0, b"")
    listener.setsockopt(PACKET, ADD_MEMBERSHIP, promiscuous)
    listener.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCE, BUFFER_BYTES)
    listener.setblocking(False)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for _ in range(256):
            try:
                seen.see(listener.recv(1 << 16))
            except BlockingIOError:
                return

    loop.add_reader(listener, read)
    try:
        yield seen
    finally:
        loop.remove_reader(listener)
        listener.close()
