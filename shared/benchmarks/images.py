"""Made images for prompts: PNG files that no engine has seen before."""

import base64
import random
import struct
import zlib
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_TILE: Final = 16  # pixels of one colour, so that a file has the size of a simple picture
_COLOURS: Final = 256
_PALETTE_TYPE: Final = 3
_BIT_DEPTH: Final = 8


def draw_image(width: int, height: int, rng: random.Random) -> bytes:
    """Return a PNG file of coloured tiles. Its own colours make it unlike any other, which an
    engine that remembers images would answer faster.
    """
    rows = bytearray()
    for top in range(0, height, _TILE):
        colours = rng.randbytes(-(-width // _TILE))
        row = b"\0" + b"".join(bytes((colour,)) * _TILE for colour in colours)[:width]
        rows += row * min(_TILE, height - top)
    header = struct.pack(">IIBBBBB", width, height, _BIT_DEPTH, _PALETTE_TYPE, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", rng.randbytes(3 * _COLOURS)),
            _chunk(b"IDAT", zlib.compress(bytes(rows), level=1)),
            _chunk(b"IEND", b""),
        )
    )


def draw_image_url(size: tuple[int, int], rng: random.Random) -> str:
    """Return an image of this width and height as a `data:` URL."""
    return "data:image/png;base64," + base64.b64encode(draw_image(*size, rng)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + _checksum(kind + content)


def _checksum(content: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(content))
