"""The page that shows the API: Swagger UI, whose files are served from here.

It comes from an installed package and runs under a policy that lets the browser load nothing from
anywhere else.
"""

from functools import cache
from importlib import resources
from typing import Final

from litestar import MediaType, Response, get
from litestar.params import FromPath

from schemas.errors import ErrorCode
from shared.errors import RefusedError

PACKAGE: Final = "mkdocs_swagger_ui_tag"
FILES: Final = {
    "swagger-ui-bundle.js": ("swagger-ui/javascripts/swagger-ui-bundle.js", "text/javascript"),
    "swagger-ui.css": ("swagger-ui/stylesheets/swagger-ui.css", "text/css"),
}
START: Final = "start.js"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
PAGE: Final = f"""<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>GPU Steward: HTTP API</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
  </head>
  <body>
    <div id="api"></div>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/{START}"></script>
  </body>
</html>
"""
# The validator would be asked over the network.
START_SCRIPT: Final = b"""SwaggerUIBundle({
  url: "/schema/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
});
"""


@get("/docs", include_in_schema=False)
async def show_api() -> Response[str]:
    """The page."""
    return Response(PAGE, media_type=MediaType.HTML, headers=HEADERS)


@get("/docs/{name:str}", include_in_schema=False, sync_to_thread=True)
def read_file(name: FromPath[str]) -> Response[bytes]:
    """A file that the page loads."""
    if name == START:
        return Response(START_SCRIPT, media_type="text/javascript", headers=HEADERS)
    if name not in FILES:
        raise RefusedError(ErrorCode.NOT_FOUND, "the page has no such file", path="path.name")
    path, media_type = FILES[name]
    return Response(_content(path), media_type=media_type, headers=HEADERS)


@cache
def _content(path: str) -> bytes:
    return resources.files(PACKAGE).joinpath(path).read_bytes()
