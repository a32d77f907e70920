"""A backup's file: a zip archive of parts, and last the manifest that says what each has to be."""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.errors import ErrorCode
from shared.errors import RefusedError

BACKUP_FORMAT: Final = 1  # of the file; the tables have versions of their own
BACKUP_MANIFEST: Final = "backup.json"
DATABASE: Final = "database.dump"  # as pg_dump's custom form has it
SETTINGS: Final = "settings.json"
FILES: Final = "files/"  # of the data directory, by their path in it
SETTINGS_FILES: Final = "settings/"  # that settings name, numbered
CHUNK_BYTES: Final = 1 << 20
MAX_HELD_BYTES: Final = 16 << 20  # of a part that is read as a whole
_OLD_DATE: Final = (1980, 1, 1, 0, 0, 0)  # the first that a zip archive knows
OnBytes = Callable[[int], None]


class Part(Struct, frozen=True, kw_only=True):
    """What a part of the archive has to be."""

    size_bytes: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """What a backup is. `schemas` are the versions of each service's tables."""

    format: int
    release: str
    created_at: datetime
    installation_id: UUID
    schemas: dict[str, int]
    parts: dict[str, Part]


class RanSettings(Struct, frozen=True, kw_only=True):
    """How the platform was started: its command line, its variables, and files that these name.

    `files` are parts of the archive by the path that each had.
    """

    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    files: dict[str, str] = {}


class _Format(Struct):
    format: int
    release: str = "an unknown release"


@dataclass(slots=True)
class BackupWriter:
    """Writes parts one after the other; `on_bytes` is told how many each chunk had."""

    archive: zipfile.ZipFile
    on_bytes: OnBytes
    parts: dict[str, Part] = field(default_factory=dict)

    @contextmanager
    def open_part(self, name: str) -> "Iterator[Callable[[bytes], None]]":
        """Give the function that appends to a new part."""
        digest, size = hashlib.sha256(), 0
        entry = zipfile.ZipInfo(name, _OLD_DATE)
        entry.external_attr = 0o600 << 16
        with self.archive.open(entry, "w", force_zip64=True) as file:

            def append(chunk: bytes) -> None:
                nonlocal size
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                self.on_bytes(len(chunk))

            yield append
        self.parts[name] = Part(size_bytes=size, sha256=digest.hexdigest())

    def add(self, name: str, content: bytes) -> None:
        with self.open_part(name) as append:
            append(content)


@contextmanager
def new_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears at `target` whole, readable by its owner alone, or not at all.

    Raises FileExistsError where something is there by then.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, target)  # unlike a rename it replaces nothing
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class BackupReader:
    """A backup whose manifest was read; what its parts hold is not checked before `check`."""

    path: Path
    archive: zipfile.ZipFile
    manifest: Manifest

    def check(self, on_bytes: OnBytes) -> None:
        """Read every part. Raises RefusedError for one that is not what the manifest says."""
        names = sorted(name for name in self.archive.namelist() if name != BACKUP_MANIFEST)
        for name in sorted({*names} ^ self.manifest.parts.keys()):
            raise damage_error(self.path, f"{name} is only in one of manifest and archive")
        for name, part in self.manifest.parts.items():
            digest, size = hashlib.sha256(), 0
            for chunk in self.chunks(name):
                digest.update(chunk)
                size += len(chunk)
                on_bytes(len(chunk))
            if (size, digest.hexdigest()) != (part.size_bytes, part.sha256):
                raise damage_error(self.path, f"{name} is not what it was when it was written")

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of a part, piece by piece. Raises RefusedError where it is damaged."""
        with _damage_is_told(self.path), self.archive.open(name) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def read(self, name: str) -> bytes:
        part = self.manifest.parts.get(name)
        if part is None or part.size_bytes > MAX_HELD_BYTES:
            raise damage_error(self.path, f"{name} is missing or too large")
        return b"".join(self.chunks(name))

    def settings(self) -> RanSettings:
        try:
            return msgspec.json.decode(self.read(SETTINGS), type=RanSettings)
        except msgspec.DecodeError as error:
            raise damage_error(self.path, f"{SETTINGS}: {error}") from error


@contextmanager
def open_backup(path: Path) -> Iterator[BackupReader]:
    """Read a backup's manifest. Raises RefusedError, in a sentence, for a file that is none, is cut
    off or of a later release.
    """
    with _damage_is_told(path):
        archive = zipfile.ZipFile(path)
    with archive:
        with _damage_is_told(path):
            manifest = _manifest(path, archive)
        yield BackupReader(path, archive, manifest)


def damage_error(path: Path, why: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, f"{path} is no whole backup: {why}")


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    if BACKUP_MANIFEST not in archive.namelist():
        message = (
            f"{path} is no backup of GPU Steward: it is a zip archive without {BACKUP_MANIFEST}"
        )
        raise RefusedError(ErrorCode.BAD_REQUEST, message)
    if archive.getinfo(BACKUP_MANIFEST).file_size > MAX_HELD_BYTES:
        raise damage_error(path, f"{BACKUP_MANIFEST} is too large")
    content = archive.read(BACKUP_MANIFEST)
    try:
        first = msgspec.json.decode(content, type=_Format)
        if first.format > BACKUP_FORMAT:
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                f"{path} was written by a later release, {first.release}: expected a backup of "
                f"format {BACKUP_FORMAT} or older, found {first.format}",
            )
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise damage_error(path, f"{BACKUP_MANIFEST}: {error}") from error


@contextmanager
def _damage_is_told(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        why = str(error).rstrip(".") or "it ends too early"
        if "not a zip file" in why:
            why = "it is no archive, or cut off"
        raise damage_error(path, why) from error
