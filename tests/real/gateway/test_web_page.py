"""The web page as browsers get it, over a real nats-server and Postgres."""

import gzip
import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from litestar.handlers import HTTPRouteHandler, WebsocketRouteHandler

from services.gateway.app import create_app
from services.gateway.context import Gateway
from services.gateway.domain.access import NOT_THE_PAGE
from services.gateway.routes.platform import web_page
from tests.support.worlds.gateway import Api, gateway

NAVIGATION = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the built files would lie; none is there yet."""
    folder = tmp_path / "dist"
    monkeypatch.setattr(web_page, "BUILT", folder)
    return folder


def build(folder: Path) -> None:
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>the page</title>")
    script = folder / "assets" / "index-1a2b.js"
    script.write_text("start()")
    script.with_name("index-1a2b.js.gz").write_bytes(gzip.compress(b"start()"))
    (folder.parent / "secret.txt").write_text("not to be served")


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str, tmp_path: Path, built: Path) -> AsyncIterator[Api]:
    """A gateway that asks for tokens; the page is open all the same."""
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": "0" * 64, "role": "viewer", "namespace": "a"}]))
    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as running:
        yield running


async def fetch(api: Api, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
    options: dict[str, Any] = {"headers": headers or NAVIGATION}
    async with api.session.get(api.url + path, **options) as response:
        return response.status, await response.text(), response.headers


def test_it_is_looked_for_where_it_is_built() -> None:
    assert (web_page.BUILT.parent / "package.json").is_file()


async def test_built_page_replaces_hint_without_restart(api: Api, built: Path) -> None:
    status, text, _ = await fetch(api, "/")
    assert (status, "<code>make web</code>" in text) == (200, True)

    build(built)

    assert (await fetch(api, "/"))[:2] == (200, "<title>the page</title>")


async def test_hashed_files_are_cached_page_is_revalidated(api: Api, built: Path) -> None:
    build(built)

    _, _, page = await fetch(api, "/")
    _, script, asset = await fetch(api, "/assets/index-1a2b.js", **{"Accept-Encoding": "gzip"})
    again, body, _ = await fetch(api, "/", **{"If-None-Match": page["ETag"]})

    assert page["Cache-Control"] == "no-cache"
    assert (script, asset["Content-Encoding"]) == ("start()", "gzip")
    assert asset["Cache-Control"] == "public, max-age=31536000, immutable"
    assert asset["Content-Type"] == "text/javascript; charset=utf-8"
    assert (again, body) == (304, "")


@pytest.mark.parametrize(
    ("taken", "sent"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip, deflate", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("identity", None),
    ],
)
async def test_smallest_form_that_client_takes_is_sent(
    api: Api, built: Path, taken: str, sent: str | None
) -> None:
    build(built)
    forms = {"br": b"as brotli", "gzip": gzip.compress(b"start()"), None: b"start()"}
    (built / "assets" / "index-1a2b.js.br").write_bytes(b"as brotli")

    async with aiohttp.ClientSession(auto_decompress=False) as session:
        url = f"{api.url}/assets/index-1a2b.js"
        async with session.get(url, headers={"Accept-Encoding": taken}) as response:
            assert response.headers.get("Content-Encoding") == sent
            assert await response.read() == forms[sent]


async def test_first_page_names_files_of_its_script(api: Api, built: Path) -> None:
    build(built)

    (_, _, first), (_, _, place) = await fetch(api, "/"), await fetch(api, "/queue")

    named = re.findall(r"<([^>]*)>; rel=preload; as=fetch; crossorigin", first["Link"])
    assert "Link" not in place
    statuses = [(await fetch(api, path))[0] for path in named]
    assert statuses == [401] * 3  # there, for those who may


async def test_page_paths_give_the_page_others_404(api: Api, built: Path) -> None:
    build(built)
    script = {"Accept": "*/*"}

    found = {
        "place": (await fetch(api, "/gpus/a/GPU-1"))[:2],
        "asset": (await fetch(api, "/assets/gone.js", **script))[0],
        "route": (await fetch(api, "/api/v1/nothing"))[0],
        "outside": (await fetch(api, "/%2e%2e/secret.txt", **script))[0],
        "nul": (await fetch(api, "/a%00b", **script))[0],
    }

    assert found == {
        "place": (200, "<title>the page</title>"),
        "asset": 404,
        "route": 401,
        "outside": 404,
        "nul": 404,
    }


async def test_the_page_runs_only_its_own_scripts(api: Api, built: Path) -> None:
    build(built)

    _, _, headers = await fetch(api, "/")
    policy = dict(
        part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
    )

    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_other_paths_are_not_public_like_the_page() -> None:
    application = create_app(cast(Gateway, None))
    handlers = [
        (route.path, handler)
        for route in application.routes
        for handler in getattr(route, "route_handlers", [getattr(route, "route_handler", None)])
        if isinstance(handler, HTTPRouteHandler | WebsocketRouteHandler)
    ]

    open_like_the_page = {
        path for path, _ in handlers if path.lstrip("/").partition("/")[0] not in NOT_THE_PAGE
    }

    on_the_way = {"/sign-in/start", "/sign-in/callback"}
    assert open_like_the_page == {"/", "/{place:path}", *on_the_way}
