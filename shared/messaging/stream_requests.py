"""Requests to the servers about a stream, as JSON: what nats-py does not know of stays as it is."""

from typing import Any, Final

import msgspec
import nats.errors
from nats.js.errors import APIError

from shared.errors import UnavailableError
from shared.messaging.bus import Bus
from shared.messaging.stream_state import StreamView

# What a request about a stream raises while the servers do not serve it.
FAILURES: Final = (nats.errors.Error, OSError, TimeoutError, UnavailableError)
ANSWER_SECONDS: Final = 2.0  # of a stream without a leader nobody answers


async def fetch_stream(bus: Bus, name: str) -> StreamView:
    """Return what the servers say of a stream.

    Raises NotFoundError, another error of nats-py, or UnavailableError for what is no answer.
    """
    answer = await _ask(bus, f"STREAM.INFO.{name}", b"")
    try:
        return msgspec.json.decode(answer, type=StreamView)
    except msgspec.MsgspecError as error:
        raise UnavailableError(f"the NATS server says of stream {name}: {error}") from error


async def change_stream(bus: Bus, config: dict[str, Any]) -> None:
    """Give a stream another configuration. Raises an error of nats-py."""
    await _ask(bus, f"STREAM.UPDATE.{config['name']}", msgspec.json.encode(config))


async def _ask(bus: Bus, request: str, body: bytes) -> bytes:
    reply = await bus.nats.request(f"$JS.API.{request}", body, timeout=ANSWER_SECONDS)
    if error := msgspec.json.decode(reply.data).get("error"):
        APIError.from_error(error)  # raises it
    return reply.data
