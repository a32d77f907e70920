"""Receiving messages without what nats-py makes of each: an object, a place in a queue, a turn."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser


class RawMessage(NamedTuple):
    """A message as it was read; of a status of the server, `reply` is empty."""

    subject: bytes
    reply: bytes
    data: bytes
    headers: bytes


Take = Callable[[RawMessage], None]


class RawParser(Parser):
    """Hands messages of some subscriptions over as they are read; nats-py gets all others."""

    def __init__(self, client: Client) -> None:
        self.takers: dict[int, Take] = {}
        super().__init__(client)

    def reset(self) -> None:
        """Forget what was begun: a new connection begins anew."""
        super().reset()
        self._unread, self._missing = [b""], 0

    async def parse(self, data: bytes = b"") -> None:
        """Read what has come, up to the end of the last message that is complete."""
        if self.buf or self.state != AWAITING_CONTROL_LINE:
            await super().parse(data)  # what its predecessor had begun
            return
        self._unread.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data, at, missing = b"".join(self._unread), 0, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            start, behind = end + 2, end + 2
            if data.startswith((b"MSG ", b"HMSG "), at):
                words = data[at:end].split()
                behind += int(words[-1]) + 2
                if behind > len(data):
                    missing = behind - len(data)
                    break
                if (take := self.takers.get(int(words[2]))) is not None:
                    take(_read_message(words, data[start : behind - 2]))
                    at = behind
                    continue
            await super().parse(data[at:behind])
            at = behind
        self._unread, self._missing = [data[at:]], missing


def _read_message(words: list[bytes], body: bytes) -> RawMessage:
    """Read `MSG subject sid [reply] size`, or `HMSG subject sid [reply] size-of-headers size`."""
    if words[0] == b"MSG":
        return RawMessage(words[1], words[3] if len(words) == 5 else b"", body, b"")
    size = int(words[-2])
    return RawMessage(words[1], words[3] if len(words) == 6 else b"", body[size:], body[:size])


@asynccontextmanager
async def receive(client: Client, subject: str, take: Take) -> AsyncIterator[None]:
    """Subscribe, and call `take` with every message, in its turn of reading: it may not wait."""
    connection: Any = client
    if not isinstance(connection._ps, RawParser):  # noqa: SLF001  # nats-py reads by no other
        connection._ps = RawParser(client)  # noqa: SLF001  # as above
    takers = connection._ps.takers  # noqa: SLF001  # as above
    subscription: Any = await client.subscribe(subject)
    takers[subscription._id] = take  # noqa: SLF001  # by it the server names the subscription
    try:
        yield
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()
        del takers[subscription._id]  # noqa: SLF001  # as above
