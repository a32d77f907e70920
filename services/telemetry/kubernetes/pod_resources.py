"""Asks kubelet at its socket which pods have which devices."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from services.telemetry.domain.pods import PodDevices
from services.telemetry.kubernetes.wire import allocatable_of, pods_of
from shared.errors import UnavailableError
from shared.waiting import within

LIST: Final = "/v1.PodResourcesLister/List"
ALLOCATABLE: Final = "/v1.PodResourcesLister/GetAllocatableResources"
ANSWER_TIMEOUT_SECONDS: Final = 3.0

T = TypeVar("T")


class Kubelet(NamedTuple):
    """What kubelet is asked: what pods have, and every id that it may give, after its resource.

    Each call raises UnavailableError.
    """

    pods: Callable[[], Awaitable[tuple[PodDevices, ...]]]
    allocatable: Callable[[], Awaitable[tuple[tuple[str, str], ...]]]


@asynccontextmanager
async def kubelet(socket: Path) -> AsyncIterator[Kubelet]:
    """A connection to kubelet, opened with the first question."""
    # Imported once there is a kubelet: other agents are spared its memory.
    from grpclib.client import Channel, UnaryUnaryMethod
    from grpclib.encoding.base import CodecBase
    from grpclib.exceptions import GRPCError, StreamTerminatedError

    class Unread(CodecBase):
        """Leaves messages as they are."""

        __content_subtype__ = "proto"

        def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002  # the interface's
            return bytes(message)

        def decode(self, data: bytes, message_type: Any) -> bytes:  # noqa: ARG002  # the interface's
            return data

    channel = Channel(path=str(socket), codec=Unread())
    listing = UnaryUnaryMethod[bytes, bytes](channel, LIST, bytes, bytes)
    allocating = UnaryUnaryMethod[bytes, bytes](channel, ALLOCATABLE, bytes, bytes)

    async def answer(method: UnaryUnaryMethod[bytes, bytes], read: Callable[[bytes], T]) -> T:
        try:
            async with within(ANSWER_TIMEOUT_SECONDS):
                return read(await method(b""))
        except TimeoutError as error:
            raise UnavailableError(
                f"expected kubelet at {socket} to answer within {ANSWER_TIMEOUT_SECONDS:g} s, "
                "it did not"
            ) from error
        except (OSError, GRPCError, StreamTerminatedError, ValueError) as error:
            raise UnavailableError(f"kubelet at {socket} does not answer: {error}") from error

    try:
        yield Kubelet(
            pods=lambda: answer(listing, pods_of),
            allocatable=lambda: answer(allocating, allocatable_of),
        )
    finally:
        channel.close()
