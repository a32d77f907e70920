"""The web page: the built files, kept by browsers for as long as they may be."""

import asyncio
import gzip
import hashlib
from pathlib import Path
from typing import Any, Final

from litestar import MediaType, Request, Response, get

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from shared.errors import RefusedError

BUILT: Final = Path(__file__).parents[2] / "web" / "dist"
# Their names change with what is in them.
ASSETS: Final = "assets/"
FOREVER: Final = "public, max-age=31536000, immutable"
# How files lie here compressed, the smallest first.
ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}
MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    # Mantine writes its theme's variables into a style element, and charts place their tooltips by
    # style attributes.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# What the script of the first page asks for, asked for while the script is still on its way.
FIRST_DATA: Final = ", ".join(
    f"<{endpoint.address()}>; rel=preload; as=fetch; crossorigin"
    for endpoint in (endpoints.SHOW_ME, endpoints.LIST_GPUS, endpoints.LIST_NODES)
)
NOT_BUILT: Final = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>GPU Steward</title>
    <link rel="icon" href="data:,">
  </head>
  <body>
    <h1>GPU Steward</h1>
    <p>The web page is not built yet: <code>make web</code> builds it, then load this again.</p>
    <p>The API is there: <a href="/docs">its documentation</a>.</p>
  </body>
</html>
"""


@get(["/", "/{place:path}"], include_in_schema=False)
async def read_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A built file; the page itself for every place in it, which its own script reads."""
    return await asyncio.to_thread(_read, request)


def _read(request: Request[Any, Any, Any]) -> Response[bytes]:
    name = request.url.path.strip("/")
    is_page = name in {"", "index.html"} or "text/html" in request.headers.get("accept", "")
    path = _built(name) or (_built("index.html") if is_page else None)
    if path is not None:
        more = {"Link": FIRST_DATA} if not name else {}
        return _answer(request, path, FOREVER if name.startswith(ASSETS) else "no-cache", more)
    if not is_page:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such route")
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Response(NOT_BUILT.encode(), media_type=MediaType.HTML, headers=headers)


def _built(name: str) -> Path | None:
    """Return the built file of this name, which may be there compressed alone; None without.

    Looks anew for each request: the page may be built while the gateway serves.
    """
    path = BUILT / name.replace("\0", "")
    if not path.resolve().is_relative_to(BUILT.resolve()):
        return None
    return path if path.is_file() or _name_compressed(path, "gzip").is_file() else None


def _name_compressed(path: Path, encoding: str) -> Path:
    return path.with_name(path.name + ENCODINGS[encoding])


def _choose_encoding(request: Request[Any, Any, Any], path: Path) -> str | None:
    """Return the smallest form of the file that the client takes; None for the file as it is."""
    parts = request.headers.get("accept-encoding", "").split(",")
    pairs = [part.partition(";") for part in parts]
    accepted = {name.strip() for name, _, weight in pairs if weight.strip() not in {"q=0", "q=0.0"}}
    for encoding in ENCODINGS:
        if encoding in accepted and _name_compressed(path, encoding).is_file():
            return encoding
    return None


def _answer(
    request: Request[Any, Any, Any], path: Path, cache_control: str, more: dict[str, str]
) -> Response[bytes]:
    headers = {**HEADERS, **more, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    encoding = _choose_encoding(request, path)
    if encoding is not None:
        content = _name_compressed(path, encoding).read_bytes()
        headers["Content-Encoding"] = encoding
    elif path.is_file():
        content = path.read_bytes()
    else:
        content = gzip.decompress(_name_compressed(path, "gzip").read_bytes())
    etag = headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    if etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, media_type=media_type, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
