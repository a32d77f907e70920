"""How the agent and its NVML child work together: frames of a length and msgpack, over pipes.

1. The agent writes a request to stdin; the child answers each with one reply on stdout, in order.
2. After a part of its deadline the agent writes a number of seconds to a third pipe, the rescue
   pipe: if one call has lasted that long, do not wait for it any more.
3. If so, the child replies `Stuck` with the GPU of that call, and another of its threads finishes
   the request without that GPU. The thread in the call has lost its turn: once the call returns,
   the thread only marks the GPU as usable, and ends.
4. If the deadline passes without a reply (a lock in the driver may stop every thread), the agent
   kills the child. The next one starts without the first GPU that was `Stuck` (`hung_gpus.py`).
"""

import struct
from typing import Final

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.telemetry.readings import GpuReading
from services.telemetry.sources.source import Inventory

LENGTH: Final = struct.Struct(">I")
SECONDS: Final = struct.Struct(">d")
MAX_BYTES: Final = 16 << 20


class Open(Struct, frozen=True, tag="open"):
    """Initialise NVML."""


class TakeInventory(Struct, frozen=True, tag="inventory"):
    """Enumerate all GPUs but those at the indices `skip`, or only the one at `only`.

    What those in MIG mode may be divided into takes many calls, so `with_mig_layouts` asks for it.
    """

    skip: tuple[int, ...] = ()
    only: int | None = None
    with_mig_layouts: bool = False


class Read(Struct, frozen=True, tag="read"):
    """Read every device of the last inventory."""


class SetCap(Struct, frozen=True, tag="cap"):
    """Set a power limit; None sets the default."""

    uuid: str
    watts: float | None


class LockClock(Struct, frozen=True, tag="lock_clock"):
    """Lock the SM clock; None unlocks it."""

    uuid: str
    mhz: int | None


class MakeMig(Struct, frozen=True, tag="make_mig"):
    """Make a MIG instance of a profile, unless it is there."""

    uuid: str
    profile: str
    start: int


class RemoveMig(Struct, frozen=True, tag="remove_mig"):
    """Remove the MIG instance that begins at this slice, if there is one."""

    uuid: str
    start: int


class Done(Struct, frozen=True, tag="done"):
    """NVML is initialised and has at least one device; or a clock or MIG instance is as asked."""


class InventoryTaken(Struct, frozen=True, tag="inventory"):
    """Answers TakeInventory."""

    inventory: Inventory


class ReadingTaken(Struct, frozen=True, tag="reading"):
    """Answers Read. `xids` are device and number."""

    gpus: tuple[GpuReading, ...]
    lost: dict[str, str] = {}
    hung: dict[str, str] = {}
    xids: tuple[tuple[str, int], ...] = ()


class CapSet(Struct, frozen=True, tag="capped"):
    """Answers SetCap: the limit before."""

    watts_before: float


class CapRefused(Struct, frozen=True, tag="cap_refused"):
    """Answers SetCap and LockClock; `details` is what the device allows where that is known."""

    code: ErrorCode
    detail: str
    details: dict[str, float] = {}


class MigRefused(Struct, frozen=True, tag="mig_refused"):
    """Answers MakeMig and RemoveMig."""

    code: ErrorCode
    detail: str


class Absent(Struct, frozen=True, tag="absent"):
    """No library, or no device."""

    detail: str


class Failed(Struct, frozen=True, tag="failed"):
    """NVML as a whole does not work."""

    detail: str


class Stuck(Struct, frozen=True, tag="stuck"):
    """A call for the GPU at `index` does not return; the reply follows without it.

    `uuids` are its own and its instances', as far as they were enumerated.
    """

    index: int
    uuids: tuple[str, ...]


ProbeRequest = Open | TakeInventory | Read | SetCap | LockClock | MakeMig | RemoveMig
ProbeReply = (
    Done
    | InventoryTaken
    | ReadingTaken
    | CapSet
    | CapRefused
    | MigRefused
    | Absent
    | Failed
    | Stuck
)

_requests: Final[msgspec.msgpack.Decoder[ProbeRequest]] = msgspec.msgpack.Decoder(ProbeRequest)
_replies: Final[msgspec.msgpack.Decoder[ProbeReply]] = msgspec.msgpack.Decoder(ProbeReply)
_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: ProbeRequest | ProbeReply) -> bytes:
    """A message with its length before it."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> ProbeRequest:
    """Raises msgspec.DecodeError for what is no request."""
    return _requests.decode(body)


def decode_reply(body: bytes | bytearray | memoryview) -> ProbeReply:
    """Raises msgspec.DecodeError for what is no reply."""
    return _replies.decode(body)
