"""JSON that many clients are sent, made once for all of them."""

from dataclasses import dataclass, field

from websockets.frames import Frame, Opcode


@dataclass(slots=True, eq=False)
class SharedJson:
    """Bytes of JSON, and the WebSocket frame around them.

    A server's frames are not masked (RFC 6455), so that one is right for every client.
    """

    data: bytes
    _frame: bytes | None = field(default=None, repr=False)

    @property
    def frame(self) -> bytes:
        if self._frame is None:
            self._frame = Frame(Opcode.TEXT, self.data).serialize(mask=False)
        return self._frame
