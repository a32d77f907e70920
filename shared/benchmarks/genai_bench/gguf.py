"""The key-value header of a GGUF file, the format in which llama.cpp stores models.

Source of the layout: `docs/gguf.md` of ggml, versions 2 and 3, little-endian.
"""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shared.errors import StewardError

MAGIC: Final = b"GGUF"
VERSIONS: Final = frozenset({2, 3})
_STRING: Final = 8
_ARRAY: Final = 9
_FORMATS: Final = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}


class NotGguf(StewardError):
    """The file is not a GGUF file that this reader knows."""


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the file's model metadata by key. Raises NotGguf, and OSError."""
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise NotGguf(f"{path} is empty") from error
        with mapped:
            try:
                return _HeaderReader(mapped).metadata()
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise NotGguf(f"the header of {path} is damaged: {error}") from error


class _HeaderReader:
    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        magic = self._bytes(4)
        version = self._number("<I")
        if magic != MAGIC or version not in VERSIONS:
            raise NotGguf(f"expected GGUF version 2 or 3, found {magic!r} version {version}")
        self._number("<Q")  # tensors
        pairs = self._number("<Q")
        return {self._string(): self._value(self._number("<I")) for _ in range(pairs)}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        return self._number(self._format(kind))

    def _array(self) -> list[Any]:
        kind, count = self._number("<I"), self._number("<Q")
        if kind in (_ARRAY, _STRING):
            read: Callable[[], Any] = self._array if kind == _ARRAY else self._string
            return [read() for _ in range(count)]
        format_ = self._format(kind)
        return list(struct.unpack(f"<{count}{format_[1]}", self._bytes(_size(format_) * count)))

    def _format(self, kind: int) -> str:
        if kind not in _FORMATS:
            raise NotGguf(f"a value of the unknown type {kind}")
        return _FORMATS[kind]

    def _string(self) -> str:
        return self._bytes(self._number("<Q")).decode()

    def _number(self, format_: str) -> Any:
        return struct.unpack(format_, self._bytes(_size(format_)))[0]

    def _bytes(self, count: int) -> bytes:
        chunk = self._content[self._at : self._at + count]
        if len(chunk) < count:
            raise NotGguf("the header ends early")
        self._at += count
        return chunk


def _size(format_: str) -> int:
    return struct.calcsize(format_)
