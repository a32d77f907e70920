"""What the agent and its NVML child say to each other over pipes: a length, then msgpack.

The child answers every request with one reply, in order. Before a reply it may say that it has
given up waiting for a device (`Stuck`). On a pipe of their own it is told after how many seconds
it should.
"""

import struct
from typing import Final

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.telemetry import GpuReading
from services.telemetry.ports import Inventory

LENGTH: Final = struct.Struct(">I")
SECONDS: Final = struct.Struct(">d")
MAX_BYTES: Final = 16 << 20


class Open(Struct, frozen=True, tag="open"):
    """Initialise NVML."""


class TakeInventory(Struct, frozen=True, tag="inventory"):
    """Enumerate, without the GPUs at the indices `skip`, or nothing but the one at `only`."""

    skip: tuple[int, ...] = ()
    only: int | None = None


class Read(Struct, frozen=True, tag="read"):
    """Read every device of the last inventory."""


class Cap(Struct, frozen=True, tag="cap"):
    """Set a power limit; None sets the default."""

    uuid: str
    watts: float | None


class Done(Struct, frozen=True, tag="done"):
    """NVML is initialised and has at least one device."""


class InventoryTaken(Struct, frozen=True, tag="inventory"):
    """Answers TakeInventory."""

    inventory: Inventory


class ReadingTaken(Struct, frozen=True, tag="reading"):
    """Answers Read. `xids` are device and number."""

    gpus: tuple[GpuReading, ...]
    lost: dict[str, str] = {}
    hung: dict[str, str] = {}
    xids: tuple[tuple[str, int], ...] = ()


class Capped(Struct, frozen=True, tag="capped"):
    """Answers Cap: the limit before."""

    watts_before: float


class CapRefused(Struct, frozen=True, tag="cap_refused"):
    """Answers Cap, with what the device allows where that is known."""

    code: ErrorCode
    detail: str
    minimum_w: float | None = None
    maximum_w: float | None = None


class Absent(Struct, frozen=True, tag="absent"):
    """No library, or no device."""

    detail: str


class Failed(Struct, frozen=True, tag="failed"):
    """NVML as a whole does not work."""

    detail: str


class Stuck(Struct, frozen=True, tag="stuck"):
    """A call for the GPU at `index` does not return; the others follow without it.

    `uuids` are its own and its instances', as far as they are known.
    """

    index: int
    uuids: tuple[str, ...]


ProbeRequest = Open | TakeInventory | Read | Cap
ProbeReply = Done | InventoryTaken | ReadingTaken | Capped | CapRefused | Absent | Failed | Stuck

_requests: Final[msgspec.msgpack.Decoder[ProbeRequest]] = msgspec.msgpack.Decoder(ProbeRequest)
_replies: Final[msgspec.msgpack.Decoder[ProbeReply]] = msgspec.msgpack.Decoder(ProbeReply)
_encoder: Final = msgspec.msgpack.Encoder()


def framed(message: ProbeRequest | ProbeReply) -> bytes:
    """A message as it travels, its length before it."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> ProbeRequest:
    """Raises msgspec.DecodeError for what is no request."""
    return _requests.decode(body)


def decode_reply(body: bytes | bytearray | memoryview) -> ProbeReply:
    """Raises msgspec.DecodeError for what is no reply."""
    return _replies.decode(body)
