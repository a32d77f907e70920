"""Archives as tar files: written file by file, read only if every byte is as its headers state."""

import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, BinaryIO, Final

import msgspec

from schemas.errors import ErrorCode
from schemas.gateway.archives import FORMAT, MANIFEST, ArchivedFile, Manifest
from shared.errors import RefusedError

MAX_HELD_BYTES: Final = 64 << 20  # of the files whose content is wanted
PART_BYTES: Final = 1 << 20
MAX_FILES: Final = 50_000
TASK: Final = "task.json"
EXPERIMENT: Final = "experiment.json"  # in the folder of each
# Names that stay below the folder on every system.
PATH: Final = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,99}(/[a-z0-9_][a-z0-9_.-]{0,99}){0,3}")
END: Final = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(slots=True)
class ArchiveWriter:
    """Gives the bytes of each file in turn, last those of the manifest."""

    files: dict[str, ArchivedFile] = field(default_factory=dict)

    def add(self, path: str, content: bytes) -> bytes:
        digest = hashlib.sha256(content).hexdigest()
        self.files[path] = ArchivedFile(sha256=digest, size_bytes=len(content))
        return _member(path, content)

    def end(self, manifest: Manifest) -> bytes:
        """`manifest` with the files that were added."""
        full_manifest = msgspec.structs.replace(manifest, files=self.files)
        return _member(MANIFEST, document(full_manifest)) + END


def document(value: object) -> bytes:
    """Encode a value as an indented JSON file."""
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _member(path: str, content: bytes) -> bytes:
    header = tarfile.TarInfo(path)
    header.size, header.mode = len(content), 0o644
    padding = -len(content) % tarfile.BLOCKSIZE
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(padding)


def everything(_: str) -> bool:
    return True


def read_archive(
    tar: bytes | BinaryIO,
    *,
    is_wanted: Callable[[str], bool] = everything,
    largest_held_bytes: int | None = None,
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest and the wanted files by path, after checking every file.

    Raises RefusedError for what is damaged, unsafe or of a later release, and where more than
    `largest_held_bytes` would have to be held.
    """
    content_by_name: dict[str, bytes] = {}
    file_by_name: dict[str, ArchivedFile] = {}
    bytes_left = largest_held_bytes
    with _unreadable_is_damaged():
        for path, file in _members(tar):
            is_held = path == MANIFEST or is_wanted(path)
            digest, size, parts = hashlib.sha256(), 0, []
            for part in _parts_of(file):
                digest.update(part)
                size += len(part)
                if is_held:
                    parts.append(part)
                if (
                    is_held
                    and bytes_left is not None
                    and (bytes_left := bytes_left - len(part)) < 0
                ):
                    raise RefusedError(
                        ErrorCode.TOO_LARGE,
                        f"expected an export with documents of at most {largest_held_bytes} bytes,"
                        f" found more up to {path}",
                    )
            file_by_name[path] = ArchivedFile(sha256=digest.hexdigest(), size_bytes=size)
            if is_held:
                content_by_name[path] = b"".join(parts)
    manifest = _manifest(content_by_name.pop(MANIFEST, None))
    file_by_name.pop(MANIFEST, None)
    for path in sorted(file_by_name.keys() ^ manifest.files.keys()):
        raise damage_error(f"expected the files of {MANIFEST}, found {path} only in one of them")
    for path, file_found in file_by_name.items():
        if file_found != manifest.files[path]:
            raise damage_error(f"{path} is not what it was when it was exported")
    return manifest, content_by_name


class _InParts(io.RawIOBase):
    """A file that gives no more than a part at once: a tar file's headers set how much is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= PART_BYTES:
            raise damage_error(f"a header of {size} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _members(tar: bytes | BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    """Plain files alone: no links, devices, or sparse files, whose sizes say nothing.

    Each is to be read before the next is taken.
    """
    opened = io.BytesIO(tar) if isinstance(tar, bytes) else tar
    names: set[str] = set()
    with tarfile.open(fileobj=_InParts(opened), mode="r:") as archive:
        for number, member in enumerate(archive):
            if number >= MAX_FILES:
                raise damage_error(f"expected at most {MAX_FILES} files, found more")
            if member.isdir():
                continue
            name = member.name.removeprefix("./")
            is_plain = member.type in {tarfile.REGTYPE, tarfile.AREGTYPE}
            if not is_plain or member.issparse() or not PATH.fullmatch(name):
                raise damage_error(f"{member.name[:200]!r} cannot be part of an export")
            if name in names:
                raise damage_error(f"{name} is there twice")
            names.add(name)
            yield name, archive.extractfile(member) or io.BytesIO()


@contextmanager
def _unreadable_is_damaged() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        raise damage_error(f"unreadable as tar: {error}") from error


def _parts_of(file: IO[bytes]) -> Iterator[bytes]:
    while part := file.read(PART_BYTES):
        yield part


def _manifest(content: bytes | None) -> Manifest:
    if content is None:
        raise damage_error(f"it has no {MANIFEST}; was it cut off?")
    try:
        number = msgspec.json.decode(content, type=_Format).format
        if number > FORMAT:
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                f"expected an export of format {FORMAT} or older, found {number}: a later release"
                " wrote it",
            )
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damage_error(f"unreadable {MANIFEST}: {error}") from error


class _Format(msgspec.Struct):
    format: int


def damage_error(why: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"this is no whole export of GPU Steward: {why}")


def pack_tar(files: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """A folder's files as a tar file, one by one; what they are is checked by who reads it."""
    try:
        for path, content in files:
            yield _member(path, content)
    except ValueError as error:
        raise damage_error(str(error)) from error
    yield END


def file_in(tar: bytes, path: str) -> bytes:
    """Return one file of the archive as it is. Raises RefusedError for an unreadable tar file,
    KeyError.
    """
    with _unreadable_is_damaged():
        for name, file in _members(tar):
            if name == path:
                return b"".join(_parts_of(file))
    raise KeyError(path)
