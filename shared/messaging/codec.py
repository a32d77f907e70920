"""Messages as msgpack, decoded strictly: a text where a number belongs is an error."""

from collections.abc import Callable
from typing import Any

import msgspec
from nats.aio.msg import Msg

from schemas.base import Message, subject_for
from schemas.errors import Accepted, ErrorCode, Refused, Reply
from shared.errors import MAX_MESSAGE, RefusedError, shorten

_encode = msgspec.msgpack.Encoder().encode
_reply_decoder = msgspec.msgpack.Decoder(Accepted | Refused)


def encode(message: object) -> bytes:
    """A message's wire form; equal messages give equal bytes."""
    return _encode(message)


def decoder_of(message: Any) -> Callable[[bytes], Any]:
    """Reads one message type or union. Raises msgspec.DecodeError, whose text is short."""
    decode = msgspec.msgpack.Decoder(message).decode

    def decode_message(body: bytes) -> Any:
        try:
            return decode(body)
        except RecursionError:
            raise msgspec.DecodeError("expected a message, found too many in each other") from None
        except msgspec.DecodeError as error:
            if len(text := str(error)) <= MAX_MESSAGE:
                raise
            raise type(error)(shorten(text)) from None  # it repeats what came

    return decode_message


def decode_reply(body: bytes) -> Reply:
    """The reply to a command. Raises msgspec.ValidationError if it is none."""
    reply: Reply = _reply_decoder.decode(body)
    return reply


def check_size(what: str, body: bytes, limit_bytes: int) -> None:
    """Raises RefusedError for what no server would carry, however often it is sent."""
    if len(body) > limit_bytes:
        raise RefusedError(
            ErrorCode.TOO_LARGE,
            f"{what}: expected at most {limit_bytes} bytes, got {len(body)}",
        )


def check_subject(message: Any, subject: str) -> None:
    """Raises msgspec.ValidationError unless `message` came on its own subject.

    The server holds senders to subjects, so a message's fields about its sender are true only then.
    """
    if isinstance(message, Message) and subject != (expected_subject := subject_for(message)):
        raise msgspec.ValidationError(f"expected it on {expected_subject}, found it on {subject}")


class TypedCodec:
    """FastStream's codec for one message type or union.

    Raises msgspec.ValidationError on bad input, and on what came on another message's subject.

    The broker's default converts loosely ("7" passes as 7); this one does not.
    """

    __slots__ = ("_decode",)

    def __init__(self, message: Any) -> None:
        self._decode = decoder_of(message)

    async def decode(self, msg: Any) -> Any:
        """The message in `msg.body`."""
        return self.decode_raw(msg.raw_message)

    def decode_raw(self, raw: Msg) -> Any:
        """The message that nats-py received."""
        message = self._decode(raw.data)
        check_subject(message, raw.subject)
        return message

    async def encode(self, msg: Any, serializer: Any = None) -> tuple[bytes, str | None]:  # noqa: ARG002  # protocol
        """Bytes are passed through; anything else is encoded."""
        if isinstance(msg, bytes):
            return msg, None
        return _encode(msg), "application/msgpack"
