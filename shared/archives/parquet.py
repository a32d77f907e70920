"""Columns as a Parquet file.

By hand, since the library for it takes 165 MB of disk and 54 MB of memory: plain values, one page a
column, gzip. Format: https://parquet.apache.org/docs/file-format/, metadata in Thrift's compact
protocol.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MAGIC: Final = b"PAR1"
OPTIONAL: Final = 1
PLAIN, RLE, GZIP = 0, 3, 2
GZIP_WINDOW: Final = 31  # zlib's largest, in gzip's wrapping
# Thrift's compact types.
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


class Kind(Enum):
    """A column's physical and converted type, as Parquet numbers them."""

    INTEGER = (2, None)
    NUMBER = (5, None)
    TEXT = (6, 0)
    MICROSECONDS = (2, 10)  # of UTC, since 1970


@dataclass(slots=True)
class ParquetFile:
    """Grows by groups of rows; `content` is the whole file."""

    columns: Mapping[str, Kind]
    rows: int = 0
    _parts: list[bytes] = field(default_factory=lambda: [MAGIC])
    _groups: list[bytes] = field(default_factory=list)
    _size: int = len(MAGIC)

    def add(self, values: Mapping[str, Sequence[object]]) -> None:
        """Add one group of rows. None is null; all columns have the same length."""
        count = len(next(iter(values.values())))
        chunks = [self._chunk(name, kind, values[name]) for name, kind in self.columns.items()]
        size = sum(size for _, size in chunks)
        self.rows += count
        self._groups.append(
            _struct(
                (1, LIST, _list(STRUCT, [chunk for chunk, _ in chunks])),
                (2, I64, _integer(size)),
                (3, I64, _integer(count)),
            )
        )

    def content(self) -> bytes:
        root = _struct((4, BINARY, _text("samples")), (5, I32, _integer(len(self.columns))))
        metadata = _struct(
            (1, I32, _integer(1)),
            (2, LIST, _list(STRUCT, [root, *self._schema()])),
            (3, I64, _integer(self.rows)),
            (4, LIST, _list(STRUCT, self._groups)),
            (6, BINARY, _text("GPU Steward")),
        )
        return b"".join((*self._parts, metadata, struct.pack("<I", len(metadata)), MAGIC))

    def _schema(self) -> Iterator[bytes]:
        for name, kind in self.columns.items():
            physical, converted = kind.value
            yield _struct(
                (1, I32, _integer(physical)),
                (3, I32, _integer(OPTIONAL)),
                (4, BINARY, _text(name)),
                *([] if converted is None else [(6, I32, _integer(converted))]),
            )

    def _chunk(self, name: str, kind: Kind, values: Sequence[object]) -> tuple[bytes, int]:
        """Write the page; return the column's metadata and its uncompressed size."""
        page = _levels(values) + _plain(kind, [value for value in values if value is not None])
        packer = zlib.compressobj(wbits=GZIP_WINDOW)
        packed = packer.compress(page) + packer.flush()
        of_data = _struct(
            (1, I32, _integer(len(values))),
            (2, I32, _integer(PLAIN)),
            (3, I32, _integer(RLE)),
            (4, I32, _integer(RLE)),
        )
        header = _struct(
            (1, I32, _integer(0)),
            (2, I32, _integer(len(page))),
            (3, I32, _integer(len(packed))),
            (5, STRUCT, of_data),
        )
        at = self._size
        self._parts += (header, packed)
        self._size += len(header) + len(packed)
        metadata = _struct(
            (1, I32, _integer(kind.value[0])),
            (2, LIST, _list(I32, [_integer(PLAIN), _integer(RLE)])),
            (3, LIST, _list(BINARY, [_text(name)])),
            (4, I32, _integer(GZIP)),
            (5, I64, _integer(len(values))),
            (6, I64, _integer(len(header) + len(page))),
            (7, I64, _integer(len(header) + len(packed))),
            (9, I64, _integer(at)),
        )
        chunk = _struct((2, I64, _integer(at)), (3, STRUCT, metadata))
        return chunk, len(header) + len(page)


def _levels(values: Sequence[object]) -> bytes:
    """Return a bit for each value that is there."""
    groups = -(-len(values) // 8)
    bits = sum(1 << place for place, value in enumerate(values) if value is not None)
    run = _encode_unsigned(groups << 1 | 1) + bits.to_bytes(groups, "little")
    return struct.pack("<I", len(run)) + run


def _plain(kind: Kind, values: Sequence[object]) -> bytes:
    match kind:
        case Kind.TEXT:
            texts = [str(value).encode() for value in values]
            return b"".join(struct.pack("<I", len(text)) + text for text in texts)
        case Kind.NUMBER:
            return struct.pack(f"<{len(values)}d", *values)
        case _:
            return struct.pack(f"<{len(values)}q", *values)


def _encode_unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _integer(value: int) -> bytes:
    return _encode_unsigned(value << 1)  # zigzag; none of ours is negative


def _text(text: str) -> bytes:
    return _encode_unsigned(len(text.encode())) + text.encode()


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    short = len(items) < 15
    head = bytes([len(items) << 4 | kind]) if short else bytes([0xF0 | kind])
    return head + (b"" if short else _encode_unsigned(len(items))) + b"".join(items)


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Fields by number, rising by less than 16."""
    encoded_fields, last = [], 0
    for number, kind, content in fields:
        encoded_fields += [bytes([number - last << 4 | kind]), content]
        last = number
    return b"".join(encoded_fields) + b"\0"
