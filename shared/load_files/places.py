"""Where files of loads may be, and how they are fetched."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from schemas.task.source_file import SourceFile
from shared.datasets.bounds import MEBIBYTE, DatasetRefused
from shared.datasets.download import DatasetCache
from shared.datasets.hosts import AllowedHosts
from shared.load_files.conversion import convert, is_converted
from shared.load_files.uploads import UploadedFiles
from shared.paths import find_below

if TYPE_CHECKING:
    from shared.messaging.bus import Bus  # the base is installed without a client of the bus

OWN_MAX_BYTES: Final = 1024 * MEBIBYTE
_CHUNK_BYTES: Final = MEBIBYTE


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file of this host, under the name that tells its format."""

    path: Path
    name: str
    sha256: str

    def read_chunks(self, columns: Sequence[str] = ()) -> Iterator[bytes]:
        """Yield its bytes; of Parquet JSON lines with these columns, of Zstandard what it packs.

        Raises DatasetRefused.
        """
        try:
            with self.path.open("rb") as file:
                chunk = file.read(_CHUNK_BYTES)
                if is_converted(chunk):
                    yield from convert(self.path, chunk, columns)
                    return
                while chunk:
                    yield chunk
                    chunk = file.read(_CHUNK_BYTES)
        except OSError as error:
            raise _unreadable(self.name, error) from error


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """Files by path are below `roots`, those by URL and `uploads` come through the `cache`. None:
    there are none of a task here.
    """

    roots: tuple[Path, ...]
    cache: DatasetCache
    uploads: UploadedFiles | None = None

    def with_uploads(self, bus: "Bus") -> "FilePlaces":
        """Return the same places for a task's executor, which asks gateways for uploaded files."""
        return replace(self, uploads=UploadedFiles(bus))

    def check(self, source: SourceFile) -> None:
        """Raises DatasetRefused for a file that is not there, or a host that is not allowed."""
        if source.url is not None:
            self.cache.hosts.check_url(source.url)
        elif source.path is not None:
            self._locate(source.path)

    async def fetch(self, source: SourceFile) -> FetchedFile:
        """Return the file. Raises DatasetRefused."""
        if source.url is not None:
            path, digest = await self.cache.fetch(source.url, source.sha256)
            return FetchedFile(path, urlsplit(source.url).path, digest)
        if source.upload is not None:
            return await self._fetch_upload(source.upload, source.sha256)
        path = self._locate(source.path or "")
        max_mb = self.cache.max_file_bytes // MEBIBYTE
        try:
            if (size := path.stat().st_size) > self.cache.max_file_bytes:
                raise DatasetRefused(
                    f"expected a dataset of at most {max_mb} MiB "
                    f"(GPUSTEWARD_EXECUTOR_DATASET_MAX_MB), {path.name} has {size // MEBIBYTE}",
                    "path",
                )
            digest = await asyncio.to_thread(_hash, path)
        except OSError as error:
            raise _unreadable(path.name, error) from error
        if source.sha256 is not None and digest != source.sha256:
            raise DatasetRefused(
                f"expected a dataset with SHA-256 {source.sha256}, {path.name} has {digest}",
                "sha256",
            )
        return FetchedFile(path, path.name, digest)

    async def _fetch_upload(self, name: str, sha256: str | None) -> FetchedFile:
        if self.uploads is None or sha256 is None:
            raise DatasetRefused(
                "expected an uploaded file in a task that was submitted; here name its path or url",
                "upload",
            )
        path = await self.cache.keep(self.uploads.read(sha256), sha256)
        return FetchedFile(path, name, sha256)

    def _locate(self, name: str) -> Path:
        path = find_below(name, self.roots)
        if path is not None:
            return path
        where = ", ".join(map(str, self.roots))
        raise DatasetRefused(
            f"expected a file inside {where}, found no {name!r}"
            if where
            else "this node reads no datasets by path: an operator names directories of them by "
            "GPUSTEWARD_EXECUTOR_DATASET_ROOTS",
            "path",
        )


def own_places(directory: Path, hosts: AllowedHosts) -> FilePlaces:
    """Return the places of who measures with files of their own: all of this host, and `hosts`.
    What is fetched goes into the directory.
    """
    cache = DatasetCache(
        directory=directory,
        hosts=hosts,
        max_file_bytes=OWN_MAX_BYTES,
        max_bytes=OWN_MAX_BYTES,
    )
    return FilePlaces((Path.cwd(), Path("/")), cache)


def _unreadable(name: str, error: OSError) -> DatasetRefused:
    return DatasetRefused(f"expected a file that can be read, {name}: {error.strerror}", "path")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
