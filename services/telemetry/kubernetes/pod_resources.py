"""Asks kubelet at its socket which pods have which devices."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from services.telemetry.domain.pods import PodDevices
from services.telemetry.kubernetes.wire import pods_of
from shared.errors import UnavailableError
from shared.waiting import within

METHOD: Final = "/v1.PodResourcesLister/List"
ANSWER_SECONDS: Final = 3.0

List = Callable[[], Awaitable[tuple[PodDevices, ...]]]


@asynccontextmanager
async def kubelet(socket: Path) -> AsyncIterator[List]:
    """A connection that lists what pods have. Each list raises UnavailableError."""
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
    method = UnaryUnaryMethod[bytes, bytes](channel, METHOD, bytes, bytes)

    async def listed() -> tuple[PodDevices, ...]:
        try:
            async with within(ANSWER_SECONDS):
                return pods_of(await method(b""))
        except TimeoutError as error:
            raise UnavailableError(
                f"expected kubelet at {socket} to answer within {ANSWER_SECONDS:g} s, it did not"
            ) from error
        except (OSError, GRPCError, StreamTerminatedError, ValueError) as error:
            raise UnavailableError(f"kubelet at {socket} does not answer: {error}") from error

    try:
        yield listed
    finally:
        channel.close()
