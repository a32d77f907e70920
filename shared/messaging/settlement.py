"""What becomes of a message whose handler has ended.

A request is answered, whatever happened. A durable event is acknowledged after its handler,
redelivered while the outside is down, and given up when it can never succeed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog
from faststream import BaseMiddleware
from nats.aio.msg import Msg

from schemas.errors import ErrorCode, Refused
from shared import tracing
from shared.errors import PermanentError, RefusedError, UnavailableError, shorten
from shared.logging import log
from shared.messaging.codec import encode

DeadLetter = Callable[[str, bytes, str], Awaitable[None]]

UNKNOWN_ERROR_TRIES: Final = 5
RETRY_SECONDS: Final = 1.0
# However often it is tried: a time too far away to compute with is among it.
HOPELESS: Final = (PermanentError, OverflowError)


@dataclass(slots=True)
class Settlement:
    """Makes the middleware that answers failed requests and settles durable messages."""

    dead_letter: DeadLetter

    def __call__(self, msg: Any, /, *, context: Any) -> "SettlementMiddleware":
        return SettlementMiddleware(msg, context=context, dead_letter=self.dead_letter)


class SettlementMiddleware(BaseMiddleware[Any, Any]):
    """Around every handler of the bus; one per message."""

    __slots__ = ("_dead_letter",)

    def __init__(self, msg: Any, /, *, context: Any, dead_letter: DeadLetter) -> None:
        super().__init__(msg, context=context)
        self._dead_letter = dead_letter

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        raw: Msg = msg.raw_message
        with (
            structlog.contextvars.bound_contextvars(subject=raw.subject),
            tracing.handling(raw.subject, raw.headers, raw.data),
        ):
            if raw.reply.startswith("$JS.ACK."):
                return await self._settle(call_next, msg, raw)
            return await answer_request(lambda: call_next(msg), raw, self._dead_letter)

    async def _settle(self, call_next: Any, msg: Any, raw: Msg) -> None:
        tries = raw.metadata.num_delivered or 1
        try:
            await call_next(msg)
        except UnavailableError as error:
            log.warning("event_postponed", error=str(error), tries=tries)
            await msg.nack(delay=min(RETRY_SECONDS * tries, 30))
        except (*HOPELESS, msgspec.MsgspecError) as error:
            await self._give_up(msg, raw, str(error))
        except Exception as error:  # noqa: BLE001  # a message never ends its process
            log.exception("event_failed", tries=tries)
            if tries >= UNKNOWN_ERROR_TRIES:
                await self._give_up(msg, raw, repr(error))
            else:
                await msg.nack(delay=RETRY_SECONDS * tries)
        else:
            await msg.ack()

    async def _give_up(self, msg: Any, raw: Msg, error: str) -> None:
        error = shorten(error)
        try:
            await self._dead_letter(raw.subject, raw.data, error)
        except UnavailableError:
            await msg.nack(delay=RETRY_SECONDS)
            return
        log.error("event_given_up", error=error)
        await msg.reject()


async def answer_request(
    serve: Callable[[], Awaitable[Any]], raw: Msg, dead_letter: DeadLetter
) -> bytes:
    """Return the answer to a request: what serves it returns, or its refusal for what it raises."""
    reply: Any
    try:
        reply = await serve()
    except RefusedError as error:
        reply = error.as_refused()
    except msgspec.MsgspecError as error:
        reply = _undecodable(error)
        if not raw.reply:
            await dead_letter(raw.subject, raw.data, str(error))
    except HOPELESS as error:
        log.warning("request_refused", error=str(error))
        reply = Refused(code=ErrorCode.BAD_REQUEST, message=shorten(str(error)))
    except UnavailableError as error:
        log.warning("request_failed", error=str(error))
        reply = Refused(code=ErrorCode.UNAVAILABLE, message=str(error))
    except Exception as error:  # noqa: BLE001  # a message never ends its process
        log.exception("request_failed")
        reply = Refused(code=ErrorCode.INTERNAL, message=type(error).__name__)
    return encode(reply)


def _undecodable(error: msgspec.MsgspecError) -> Refused:
    text = str(error)
    message, separator, place = text.rpartition(" - at `")
    if not separator:
        return Refused(code=ErrorCode.BAD_REQUEST, message=text)
    return Refused(code=ErrorCode.BAD_REQUEST, message=message, path=place.rstrip("`"))
