"""What the agent and its NVML child say to each other over pipes: a length, then msgpack.

The child answers every request with one reply, in order.
"""

import struct
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from services.telemetry.ports import Inventory, Reading

LENGTH: Final = struct.Struct(">I")
MAX_BYTES: Final = 16 << 20


class Ask(StrEnum):
    """Requests; each is one byte string on the pipe."""

    OPEN = "open"
    INVENTORY = "inventory"
    READ = "read"


class Done(Struct, frozen=True, tag="done"):
    """NVML is initialised and has at least one device."""


class InventoryTaken(Struct, frozen=True, tag="inventory"):
    """Answers INVENTORY."""

    inventory: Inventory


class ReadingTaken(Struct, frozen=True, tag="reading"):
    """Answers READ."""

    reading: Reading


class Absent(Struct, frozen=True, tag="absent"):
    """No library, or no device."""

    detail: str


class Failed(Struct, frozen=True, tag="failed"):
    """NVML as a whole does not work."""

    detail: str


ProbeReply = Done | InventoryTaken | ReadingTaken | Absent | Failed

_decoder: Final[msgspec.msgpack.Decoder[ProbeReply]] = msgspec.msgpack.Decoder(ProbeReply)


def framed(body: bytes) -> bytes:
    """`body` with its length before it."""
    return LENGTH.pack(len(body)) + body


def encode_reply(reply: ProbeReply) -> bytes:
    """A reply as it travels."""
    return framed(msgspec.msgpack.encode(reply))


def decode_reply(body: bytes) -> ProbeReply:
    """Raises msgspec.DecodeError for what is no reply."""
    return _decoder.decode(body)
