"""Messages are read the same, however the connection cuts them."""

from itertools import pairwise
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messaging.raw_messages import RawMessage, RawParser

OURS = 7
STATUS = b"NATS/1.0 404 No Messages\r\n\r\n"
WIRE = b"".join(
    (
        b"PING\r\n",
        b"MSG a.b 7 $JS.ACK.1 5\r\nfirst\r\n",
        b"MSG other 1 8\r\nMSG x 7 \r\n",
        b"MSG a.c 7 $JS.ACK.2 12\r\nwith\r\nMSG 7 \r\n",
        b"HMSG a.b 7 $JS.ACK.3 14 19\r\nNATS/1.0\r\nA:\r\nthird\r\n",
        b"MSG other 1 reply 0\r\n\r\n",
        b"HMSG inbox 7 %d %d\r\n%b\r\n" % (len(STATUS), len(STATUS), STATUS),
        b"-ERR 'permissions violation'\r\n",
        b"MSG a.b 7 0\r\n\r\n",
    )
)
EXPECTED = [
    RawMessage(b"a.b", b"$JS.ACK.1", b"first", b""),
    RawMessage(b"a.c", b"$JS.ACK.2", b"with\r\nMSG 7 ", b""),
    RawMessage(b"a.b", b"$JS.ACK.3", b"third", b"NATS/1.0\r\nA:\r\n"),
    RawMessage(b"inbox", b"", b"", STATUS),
    RawMessage(b"a.b", b"", b"", b""),
]


class Reader:
    """A parser of a client that notes what reaches it."""

    def __init__(self) -> None:
        self.taken: list[RawMessage] = []
        self.others, self.pings, self.errors = AsyncMock(), AsyncMock(), AsyncMock()
        client: Any = Mock(
            _process_msg=self.others, _process_ping=self.pings, _process_err=self.errors
        )
        self.parser = RawParser(client)
        self.parser.takers[OURS] = self.taken.append

    async def read(self, *parts: bytes) -> None:
        for part in parts:
            await self.parser.parse(part)


def assert_all_was_read(reader: Reader) -> None:
    assert reader.taken == EXPECTED
    others = [call.args[1:] for call in reader.others.await_args_list]
    assert others == [(b"other", b"", b"MSG x 7 ", None), (b"other", b"reply", b"", None)]
    reader.pings.assert_awaited_once()
    reader.errors.assert_awaited_once_with("'permissions violation'")


@given(st.lists(st.integers(0, len(WIRE)), max_size=12))
async def test_messages_are_read_however_they_are_cut(places: list[int]) -> None:
    reader = Reader()
    cuts = [0, *sorted(places), len(WIRE)]

    await reader.read(*(WIRE[first:end] for first, end in pairwise(cuts)))

    assert_all_was_read(reader)


async def test_messages_are_read_byte_by_byte() -> None:
    reader = Reader()

    await reader.read(*(bytes([byte]) for byte in WIRE))

    assert_all_was_read(reader)


@pytest.mark.parametrize("begun", [b"MSG a.b 7 $JS.ACK.1 5\r\nfi", b"MSG a.", b"PIN"])
async def test_a_new_connection_begins_anew(begun: bytes) -> None:
    reader = Reader()
    await reader.read(begun)

    reader.parser.reset()
    await reader.read(WIRE)

    assert_all_was_read(reader)
