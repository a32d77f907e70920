"""Datasets by HTTP, from hosts that an operator allows alone, and uploaded ones, in one cache."""

import asyncio
import hashlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urljoin

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from shared.datasets.bounds import MEBIBYTE, DatasetRefused
from shared.datasets.hosts import AllowedHosts
from shared.waiting import within

MAX_REDIRECTS: Final = 5
CONNECT_SECONDS: Final = 20.0
READ_SECONDS: Final = 60.0
TOTAL_SECONDS: Final = 1800.0
_CHUNK_BYTES: Final = MEBIBYTE
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PARTIAL: Final = ".part"
_INDEX: Final = ".json"


class _Index(msgspec.Struct, frozen=True):
    """What an address gave last time."""

    sha256: str
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCache:
    """Files under their SHA-256. Beyond `max_bytes` together those unused for longest go; one of
    more than `max_file_bytes` is refused.
    """

    directory: Path
    hosts: AllowedHosts
    max_file_bytes: int
    max_bytes: int

    async def fetch(self, url: str, sha256: str | None = None) -> tuple[Path, str]:
        """Return the file that the address gives and its SHA-256; nothing is asked where the file
        of this `sha256` is there. Raises DatasetRefused.
        """
        self.hosts.check_url(url)
        if sha256 is not None and (path := self._take(sha256)) is not None:
            return path, sha256
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            async with within(TOTAL_SECONDS):
                path, digest = await self._ask(url, sha256)
        except TimeoutError as error:
            raise DatasetRefused(f"{url} gave no dataset in time", "url") from error
        except aiohttp.ClientError as error:
            # A refusal of the resolver comes wrapped.
            raise _refusal_in(error) or DatasetRefused(
                f"expected a dataset from {url}, got {error}", "url"
            ) from error
        await asyncio.to_thread(self._evict, path)
        return path, digest

    def _take(self, sha256: str) -> Path | None:
        path = self.directory / sha256
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    async def _ask(self, url: str, sha256: str | None) -> tuple[Path, str]:
        index_path = self.directory / (hashlib.sha256(url.encode()).hexdigest() + _INDEX)
        earlier_file = _read_index(index_path)
        is_there = earlier_file is not None and self._take(earlier_file.sha256) is not None
        asked_headers = {"Accept-Encoding": "identity"}
        if earlier_file is not None and is_there:
            asked_headers["If-None-Match"] = earlier_file.etag
        place = url
        for _ in range(MAX_REDIRECTS + 1):
            parts = self.hosts.check_url(place)
            _check_literal(self.hosts, parts)
            connector = aiohttp.TCPConnector(resolver=_CheckedResolver(self.hosts, parts))
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
            )
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, trust_env=False, auto_decompress=False
                ) as session,
                session.get(place, headers=asked_headers, allow_redirects=False) as response,
            ):
                if response.status in _REDIRECTS and (location := response.headers.get("Location")):
                    following = urljoin(place, location)
                    if parts.scheme == "https" and not following.startswith("https://"):
                        raise DatasetRefused(f"{place} leads from https to {following}", "url")
                    place = following
                    continue
                if response.status == 304 and earlier_file is not None and is_there:
                    path, digest = self.directory / earlier_file.sha256, earlier_file.sha256
                elif response.status == 200:
                    if (response.content_length or 0) > self.max_file_bytes:
                        raise self._too_large()
                    chunks = response.content.iter_chunked(_CHUNK_BYTES)
                    path, digest = await self._store(chunks, sha256)
                else:
                    raise DatasetRefused(
                        f"expected a dataset from {place}, got status {response.status}", "url"
                    )
                if sha256 is not None and digest != sha256:
                    raise _other_hash(sha256, digest)
                if etag := response.headers.get("ETag"):
                    index_path.write_bytes(msgspec.json.encode(_Index(digest, etag)))
                return path, digest
        raise DatasetRefused(f"{url} leads on more than {MAX_REDIRECTS} times", "url")

    async def keep(self, chunks: AsyncIterator[bytes], sha256: str) -> Path:
        """Return the file of this SHA-256; the chunks are asked for where it is not there yet.
        Raises DatasetRefused for others.
        """
        if (path := self._take(sha256)) is None:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path, _ = await self._store(chunks, sha256)
            await asyncio.to_thread(self._evict, path)
        return path

    async def _store(self, chunks: AsyncIterator[bytes], sha256: str | None) -> tuple[Path, str]:
        digest, size = hashlib.sha256(), 0
        with _partial_file(self.directory) as (descriptor, partial):
            async for chunk in chunks:
                size += len(chunk)
                if size > self.max_file_bytes:
                    raise self._too_large()
                digest.update(chunk)
                await asyncio.to_thread(_write_all, descriptor, chunk)
            hex_digest = digest.hexdigest()
            if sha256 is not None and hex_digest != sha256:
                raise _other_hash(sha256, hex_digest)
            path = self.directory / hex_digest
            partial.replace(path)
        return path, hex_digest

    def _too_large(self) -> DatasetRefused:
        return DatasetRefused(
            f"expected a dataset of at most {self.max_file_bytes // MEBIBYTE} MiB "
            "(GPUSTEWARD_EXECUTOR_DATASET_MAX_MB), got a larger one",
            "url",
        )

    def _evict(self, path_in_use: Path) -> None:
        files = []
        for path in self.directory.iterdir():
            try:
                status = path.stat()
            except OSError:
                continue
            files.append((status.st_mtime, status.st_size, path))
        files.sort(key=lambda file: file[0], reverse=True)
        total = 0
        for _, size, path in files:
            total += size
            if total > self.max_bytes and path != path_in_use:
                path.unlink(missing_ok=True)


class _CheckedResolver(AbstractResolver):
    """Gives the connection those addresses alone that were checked."""

    def __init__(self, hosts: AllowedHosts, parts: SplitResult) -> None:
        self._hosts = hosts
        self._parts = parts
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host, port, family)
        for address in addresses:
            self._hosts.check_address(self._parts, address["host"])
        return addresses

    async def close(self) -> None:
        await self._resolver.close()


def _check_literal(hosts: AllowedHosts, parts: SplitResult) -> None:
    """Check an address that nothing resolves, since it is one of IP."""
    host = parts.hostname or ""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return
    hosts.check_address(parts, host)


def _refusal_in(error: BaseException) -> DatasetRefused | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DatasetRefused):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _other_hash(expected: str, digest: str) -> DatasetRefused:
    return DatasetRefused(f"expected a dataset with SHA-256 {expected}, got {digest}", "sha256")


def _read_index(path: Path) -> _Index | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError):
        return None


@contextmanager
def _partial_file(directory: Path) -> Iterator[tuple[int, Path]]:
    descriptor, name = tempfile.mkstemp(suffix=_PARTIAL, dir=directory)
    try:
        yield descriptor, Path(name)
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
