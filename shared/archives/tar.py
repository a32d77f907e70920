"""Archives as tar files: written file by file, read only if every byte is what it says."""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from schemas.archives import FORMAT, MANIFEST, ArchivedFile, Manifest
from schemas.errors import ErrorCode
from shared.errors import RefusedError

LARGEST_BYTES: Final = 64 << 20
MOST_FILES: Final = 50_000
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
        whole = msgspec.structs.replace(manifest, files=self.files)
        return _member(MANIFEST, document(whole)) + END


def document(value: object) -> bytes:
    """As a file that people read."""
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def _member(path: str, content: bytes) -> bytes:
    header = tarfile.TarInfo(path)
    header.size, header.mode = len(content), 0o644
    padding = -len(content) % tarfile.BLOCKSIZE
    return header.tobuf(tarfile.USTAR_FORMAT) + content + bytes(padding)


def read_archive(
    tar: bytes, *, largest_bytes: int = LARGEST_BYTES
) -> tuple[Manifest, dict[str, bytes]]:
    """Its files by path, without the manifest.

    Raises RefusedError for what is damaged, unsafe, too large or of a later release.
    """
    if len(tar) > largest_bytes:
        raise RefusedError(
            ErrorCode.TOO_LARGE,
            f"expected an export of at most {largest_bytes >> 20} MiB, found more",
        )
    found = dict(_members(tar))
    manifest = _manifest(found.pop(MANIFEST, None))
    for path in sorted(found.keys() ^ manifest.files.keys()):
        raise damaged(f"expected the files of {MANIFEST}, found {path} only in one of them")
    for path, content in found.items():
        told = manifest.files[path]
        if len(content) != told.size_bytes or hashlib.sha256(content).hexdigest() != told.sha256:
            raise damaged(f"{path} is not what it was when it was exported")
    return manifest, found


def _members(tar: bytes) -> Iterator[tuple[str, bytes]]:
    """Plain files alone: no links, devices, or sparse files, whose sizes say nothing."""
    seen: set[str] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name = member.name.removeprefix("./")
                is_plain = member.type in {tarfile.REGTYPE, tarfile.AREGTYPE}
                if not is_plain or member.issparse() or not PATH.fullmatch(name):
                    raise damaged(f"{member.name[:200]!r} cannot be part of an export")
                if name in seen or len(seen) >= MOST_FILES:
                    raise damaged(f"{name} is there twice, or there are too many files")
                seen.add(name)
                file = archive.extractfile(member)
                yield name, file.read() if file is not None else b""
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        raise damaged(f"unreadable as tar: {error}") from error


def _manifest(content: bytes | None) -> Manifest:
    if content is None:
        raise damaged(f"it has no {MANIFEST}; was it cut off?")
    try:
        number = msgspec.json.decode(content, type=_Format).format
        if number > FORMAT:
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                f"expected an export of format {FORMAT} or older, found {number}: a later release"
                " wrote it",
            )
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise damaged(f"unreadable {MANIFEST}: {error}") from error


class _Format(msgspec.Struct):
    format: int


def damaged(why: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"this is no whole export of GPU Steward: {why}")


def pack(files: Mapping[str, bytes]) -> bytes:
    """A folder's files as a tar file; what they are is checked by who reads it."""
    try:
        return b"".join(_member(path, content) for path, content in files.items()) + END
    except ValueError as error:
        raise damaged(str(error)) from error


def file_in(tar: bytes, path: str) -> bytes:
    """One of its files as it is. Raises RefusedError for an unreadable tar file, KeyError."""
    return dict(_members(tar))[path]
