"""A dataset's text in lines or JSON values, unpacked and decoded within bounds."""

import codecs
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from shared.datasets.bounds import (
    MAX_ROW_BYTES,
    MAX_UNPACKED_BYTES,
    MEBIBYTE,
    DatasetRefused,
)

GZIP: Final = b"\x1f\x8b"
# What begins so is no text, by the word for it.
_PACKED: Final = {
    b"PK\x03\x04": "a ZIP archive",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PAR1": "packed Parquet",
}
_OTHER_ENCODINGS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_GZIP_WINDOW: Final = 31  # zlib's largest, in gzip's wrapping
_PIECE_BYTES: Final = MEBIBYTE


def unpack(chunks: Iterable[bytes], max_bytes: int = MAX_UNPACKED_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if it is gzip.

    Raises DatasetRefused for other packings, a damaged one, and more than `max_bytes`.
    """
    source = iter(chunks)
    first = next(source, b"")
    for magic, word in _PACKED.items():
        if first.startswith(magic):
            raise DatasetRefused(
                f"expected plain text, JSON, CSV or one of them in gzip, got {word}: unpack or "
                "convert it first"
            )
    total = 0
    pieces = _gunzip(first, source) if first.startswith(GZIP) else _chain(first, source)
    for piece in pieces:
        total += len(piece)
        if total > max_bytes:
            raise DatasetRefused(
                f"expected at most {_size_text(max_bytes)} of text, got more once unpacked"
            )
        yield piece


def _size_text(size: int) -> str:
    return f"{size // MEBIBYTE} MiB" if size >= MEBIBYTE else f"{size} bytes"


def _chain(first: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from source


def _gunzip(first: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for chunk in _chain(first, source):
            packed = chunk
            while packed:
                if unpacker.eof:  # gzip files after each other are a gzip file
                    unpacker = zlib.decompressobj(_GZIP_WINDOW)
                yield unpacker.decompress(packed, _PIECE_BYTES)
                packed = unpacker.unconsumed_tail or unpacker.unused_data
        while not unpacker.eof:
            piece = unpacker.decompress(unpacker.unconsumed_tail, _PIECE_BYTES)
            if not piece:
                raise DatasetRefused("expected a gzip file to its end, got one that is cut off")
            yield piece
    except zlib.error as error:
        raise DatasetRefused(f"expected a gzip file, got a damaged one: {error}") from error


def decode(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield UTF-8 as text. Raises DatasetRefused for any other encoding, and for NUL bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position, is_first = 0, True
    for piece in pieces:
        if is_first and piece.startswith(_OTHER_ENCODINGS):
            raise DatasetRefused("expected text in UTF-8, got UTF-16: convert it first")
        if (place := piece.find(b"\x00")) >= 0:
            raise DatasetRefused(
                f"expected text in UTF-8, got a NUL byte at byte {position + place}"
            )
        try:
            text = decoder.decode(piece)
        except UnicodeDecodeError as error:
            raise _bad_encoding(position, error) from error
        position += len(piece)
        if text:
            yield text.removeprefix("\ufeff") if is_first else text
            is_first = False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _bad_encoding(position, error) from error


def _bad_encoding(position: int, error: UnicodeDecodeError) -> DatasetRefused:
    return DatasetRefused(
        f"expected text in UTF-8, got something else near byte {position + error.start}: "
        "convert it first"
    )


def split_lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield lines with their ends. Raises DatasetRefused for one that is too long."""
    last_line = ""
    number = 0
    for text in texts:
        *lines, last_line = (last_line + text).split("\n")
        for line in lines:
            number += 1
            _check_length(line, f"line {number}")
            yield line + "\n"
        _check_length(last_line, f"line {number + 1}")
    if last_line:
        yield last_line


def _check_length(text: str, what: str) -> None:
    if len(text) > MAX_ROW_BYTES:
        raise DatasetRefused(
            f"expected at most {MAX_ROW_BYTES // MEBIBYTE} million characters in {what}, got more"
        )


def split_array(texts: Iterable[str]) -> Iterator[Any]:
    """Yield the values of a JSON array one by one. Raises DatasetRefused for anything else."""
    source = iter(texts)
    buffer = _JsonBuffer(source)
    if not buffer.take("["):
        raise DatasetRefused("expected a JSON array, got another JSON value")
    number = 0
    if buffer.take("]"):
        return
    while True:
        number += 1
        yield buffer.value(number)
        if buffer.take("]"):
            break
        if not buffer.take(","):
            raise DatasetRefused(f"expected a comma or the end after value {number} of the array")
    if not buffer.is_over():
        raise DatasetRefused("expected nothing after the JSON array, got more")


class _JsonBuffer:
    """The next part of a long JSON text."""

    def __init__(self, source: Iterator[str]) -> None:
        self._source = source
        self._text = ""
        self._place = 0
        self._decoder = json.JSONDecoder()

    def take(self, character: str) -> bool:
        """Take this character if it comes next, after any space."""
        if self.is_over() or self._text[self._place] != character:
            return False
        self._place += 1
        return True

    def is_over(self) -> bool:
        """True if only space is left; what space comes next is taken."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = space.end() if space is not None else self._place
            if self._place < len(self._text):
                return False
            if not self._read():
                return True

    def value(self, number: int) -> Any:
        """Take a value. Raises DatasetRefused."""
        self.is_over()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except RecursionError as error:
                raise DatasetRefused(f"value {number} of the array is nested too deep") from error
            except ValueError as error:
                _check_length(self._text[self._place :], f"value {number} of the array")
                if not self._read():
                    raise DatasetRefused(f"value {number} of the array: {error}") from error
                continue
            if end < len(self._text) or not self._read():  # a number may go on
                self._place = end
                return value

    def _read(self) -> bool:
        text = next(self._source, None)
        if text is None:
            return False
        self._text = self._text[self._place :] + text
        self._place = 0
        return True
