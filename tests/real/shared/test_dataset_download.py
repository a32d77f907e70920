"""Datasets by HTTP from a server of this host."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from shared.datasets.bounds import DatasetRefused
from shared.datasets.download import DatasetCache
from shared.datasets.hosts import AllowedHosts
from tests.support.http_server import serving

CONTENT = b"one prompt\nanother prompt\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class FileServer:
    """Serves CONTENT; `asked` are the paths of the requests."""

    asked: list[str] = field(default_factory=list)
    address: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        headers = {"ETag": '"1"'}
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304, headers=headers)
        if request.path == "/endless":
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(bytes(2**18))
        if request.path == "/circle":
            raise web.HTTPFound("/circle")
        if request.path == "/away":
            raise web.HTTPFound(request.query["to"])
        if request.path == "/missing":
            raise web.HTTPNotFound
        return web.Response(body=CONTENT, headers=headers)


@asynccontextmanager
async def file_server() -> AsyncIterator[FileServer]:
    server = FileServer()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    async with serving(app) as server.address:
        yield server


def make_cache(directory: Path, private: str = "", public: str = "", **limits: Any) -> DatasetCache:
    given: dict[str, Any] = {"max_file_bytes": 2**20, "max_bytes": 2**24} | limits
    return DatasetCache(directory=directory, hosts=AllowedHosts.of(public, private), **given)


def place_of(server: FileServer) -> str:
    return server.address.removeprefix("http://")


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def test_unchanged_file_is_sent_once(tmp_path: Path) -> None:
    async with file_server() as server:
        cache = make_cache(tmp_path, place_of(server))
        first = await cache.fetch(f"{server.address}/data.txt")
        second = await cache.fetch(f"{server.address}/data.txt")
        by_hash = await cache.fetch(f"{server.address}/other.txt", SHA256)

    assert first == second == by_hash == (tmp_path / SHA256, SHA256)
    assert first[0].read_bytes() == CONTENT
    assert server.asked == ["/data.txt", "/data.txt"]


async def test_redirect_to_an_allowed_host_is_followed(tmp_path: Path) -> None:
    async with file_server() as server, file_server() as other:
        cache = make_cache(tmp_path, f"{place_of(server)},{place_of(other)}")
        path, _ = await cache.fetch(f"{server.address}/away?to={other.address}/data")

    assert path.read_bytes() == CONTENT
    assert other.asked == ["/data"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/endless", "at most 1 MiB"),
        ("/circle", "leads on more than"),
        ("/missing", "status 404"),
        ("/away?to=http://169.254.169.254/latest/meta-data", "not allowed"),
        ("/away?to=file:///etc/passwd", "http:// or https://"),
        ("/away?to=http://localhost:1/data", "not allowed"),
    ],
)
async def test_bad_answer_is_refused_and_leaves_nothing(
    path: str, words: str, tmp_path: Path
) -> None:
    async with file_server() as server:
        cache = make_cache(tmp_path, place_of(server))
        with pytest.raises(DatasetRefused, match=words):
            await cache.fetch(f"{server.address}{path}")

    assert names_in(tmp_path) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_loopback_address_is_refused_before_it_is_asked(host: str, tmp_path: Path) -> None:
    async with file_server() as server:
        place = place_of(server).replace("127.0.0.1", host)
        cache = make_cache(tmp_path, public=place)
        with pytest.raises(DatasetRefused, match="DATASET_PRIVATE_HOSTS"):
            await cache.fetch(f"http://{place}/data")

    assert server.asked == []


async def test_redirect_to_a_loopback_address_is_refused(tmp_path: Path) -> None:
    async with file_server() as server, file_server() as inner:
        hidden = place_of(inner).replace("127.0.0.1", "localhost")
        cache = make_cache(tmp_path, place_of(server), public=hidden)
        with pytest.raises(DatasetRefused, match="private to this host"):
            await cache.fetch(f"{server.address}/away?to=http://{hidden}/data")

    assert inner.asked == []


async def test_file_of_another_hash_is_refused(tmp_path: Path) -> None:
    async with file_server() as server:
        cache = make_cache(tmp_path, place_of(server))
        with pytest.raises(DatasetRefused, match=SHA256):
            await cache.fetch(f"{server.address}/data", "0" * 64)

    assert names_in(tmp_path) == []


async def test_server_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    async with file_server() as server:
        place = place_of(server)
    with pytest.raises(DatasetRefused, match="expected a dataset from"):
        await make_cache(tmp_path, place).fetch(f"http://{place}/data")


async def test_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(2000))
    (tmp_path / "crashed.part").write_bytes(bytes(2000))
    await asyncio.sleep(0.02)
    async with file_server() as server:
        cache = make_cache(tmp_path, place_of(server), max_bytes=1000)
        path, _ = await cache.fetch(f"{server.address}/data")

    assert path.exists()
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "crashed.part").exists()
