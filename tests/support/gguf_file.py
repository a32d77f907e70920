"""A GGUF model with other weights' precision, so that a test has two quantizations of one model.

The form is that of ggml's docs/gguf.md; blocks of 32 weights are those of ggml-quants.
"""

import io
import struct
from pathlib import Path
from typing import Final

import numpy as np

_Q4_1, _Q8_0 = 3, 8
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _ARRAY = 8, 9
_ALIGNMENT: Final = 32
_BLOCK: Final = 32
# Bytes of a block of 32 weights, or of 256, of the types that small models have.
_BLOCK_BYTES: Final = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 14: (256, 210)}


def write_as_q8(source: Path, target: Path) -> None:
    """Write the model with its Q4_1 weights as Q8_0: more bytes, and no better answers."""
    data = source.read_bytes()
    stream = io.BytesIO(data)
    _, _, tensors, settings = struct.unpack("<4sIQQ", stream.read(24))
    for _ in range(settings):
        _skip_text(stream)
        _skip_value(stream, *struct.unpack("<I", stream.read(4)))
    head = data[: stream.tell()]
    infos = [_read_info(stream) for _ in range(tensors)]
    begin = _aligned(stream.tell())
    table, body = bytearray(), bytearray()
    for name, dimensions, kind, offset in infos:
        per_block, block_bytes = _BLOCK_BYTES[kind]
        size = int(np.prod(dimensions)) // per_block * block_bytes
        weights = data[begin + offset : begin + offset + size]
        if kind == _Q4_1:
            kind, weights = _Q8_0, _as_q8(weights)
        table += struct.pack("<Q", len(name)) + name
        count = len(dimensions)
        table += struct.pack(f"<I{count}QIQ", count, *dimensions, kind, len(body))
        body += weights + bytes(_aligned(len(weights)) - len(weights))
    start = head + table
    target.write_bytes(start + bytes(_aligned(len(start)) - len(start)) + body)


def _as_q8(weights: bytes) -> bytes:
    blocks = np.frombuffer(weights, np.uint8).reshape(-1, 20)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    values = nibbles.astype(np.float32) * scale + least
    steps = np.abs(values).max(axis=1, keepdims=True) / 127
    whole = np.round(np.divide(values, steps, out=np.zeros_like(values), where=steps > 0))
    made = np.empty((len(values), 2 + _BLOCK), np.uint8)
    made[:, :2] = steps.astype(np.float16).view(np.uint8)
    made[:, 2:] = whole.astype(np.int8).view(np.uint8)
    return made.tobytes()


def _read_info(stream: io.BytesIO) -> tuple[bytes, tuple[int, ...], int, int]:
    (length,) = struct.unpack("<Q", stream.read(8))
    name = stream.read(length)
    (count,) = struct.unpack("<I", stream.read(4))
    dimensions = struct.unpack(f"<{count}Q", stream.read(8 * count))
    kind, offset = struct.unpack("<IQ", stream.read(12))
    return name, dimensions, kind, offset


def _skip_text(stream: io.BytesIO) -> None:
    (length,) = struct.unpack("<Q", stream.read(8))
    stream.seek(length, io.SEEK_CUR)


def _skip_value(stream: io.BytesIO, kind: int) -> None:
    if kind == _TEXT:
        _skip_text(stream)
    elif kind == _ARRAY:
        inner, count = struct.unpack("<IQ", stream.read(12))
        for _ in range(count):
            _skip_value(stream, inner)
    else:
        stream.seek(_SIZES[kind], io.SEEK_CUR)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
