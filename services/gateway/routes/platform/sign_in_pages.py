"""Signing in by a browser: two pages that are no part of the API, which it passes on its way to the
provider and back.
"""

from html import escape
from typing import Any, Final

from litestar import MediaType, Response, get
from litestar.datastructures import Cookie
from litestar.response import Redirect

from schemas.errors import HTTP_STATUS, ErrorCode
from services.gateway.context import Gateway
from services.gateway.domain.access import authentication_error, cookie_name
from services.gateway.http.refused_sign_ins import count_refused
from services.gateway.ledger import logins
from services.gateway.ledger.sign_in_attempts import ATTEMPT_SECONDS
from services.gateway.routes.common import TheGateway
from services.gateway.routes.platform.login import AnyRequest, login_cookie
from services.gateway.routes.platform.sign_in import origin_of, record_sign_in
from services.gateway.routes.platform.web_page import HEADERS
from shared.errors import RefusedError, StewardError, UnavailableError

START: Final = "/sign-in/start"
CALLBACK: Final = "/sign-in/callback"
REFUSAL_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>GPU Steward</title>
    <link rel="icon" href="/icon.svg">
  </head>
  <body>
    <main>
      <h1>GPU Steward</h1>
      <p role="alert">Not signed in: {reason}.</p>
      <p><a href="/">Back</a></p>
    </main>
  </body>
</html>
"""


@get(START, include_in_schema=False)
async def start_sign_in(gateway: TheGateway, request: AnyRequest) -> Response[Any]:
    """Lead a browser to the provider."""
    place = _local_place(request.query_params.get("place", "/"))
    try:
        gateway.sign_in.heed_rate()
        url, browser = await gateway.sign_in.start(
            f"{origin_of(gateway, request)}{CALLBACK}", place
        )
    except (RefusedError, UnavailableError) as error:
        return _refusal(error)
    response = Redirect(url, status_code=302)
    response.set_cookie(_attempt_cookie(request, browser, int(ATTEMPT_SECONDS)))
    response.set_header("Cache-Control", "no-store")
    return response


@get(CALLBACK, include_in_schema=False)
async def finish_sign_in(gateway: TheGateway, request: AnyRequest) -> Response[Any]:
    """Log a browser in that comes back from the provider."""
    try:
        secret, place = await _log_in(gateway, request)
    except (RefusedError, UnavailableError) as error:
        count_refused(gateway.audit, request.scope, error)
        return _refusal(error)
    response = Redirect(place, status_code=302)
    response.set_cookie(login_cookie(request, secret, logins.LOGIN_SECONDS))
    response.set_cookie(_attempt_cookie(request, "", 0))
    response.set_header("Cache-Control", "no-store")
    return response


async def _log_in(gateway: Gateway, request: AnyRequest) -> tuple[str, str]:
    """Return the login's secret and where the browser goes on. Raises RefusedError."""
    query = request.query_params
    browser = request.cookies.get(_attempt_cookie_name(request), "")
    attempt = await gateway.sign_in.take(query.get("state", ""), browser)
    if "code" not in query:
        reason = query.get("error_description") or query.get("error") or "no code"
        raise authentication_error(f"the provider says no ({reason[:200]})")
    signed_in = await gateway.sign_in.redeem(attempt, query["code"])
    await record_sign_in(signed_in.person, gateway, request)
    return await gateway.sign_in.log_in(signed_in), attempt.place


def _local_place(text: str) -> str:
    """Return a place of the page; the first for what leads elsewhere."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_local and text.isprintable() and "\\" not in text else "/"


def _attempt_cookie_name(request: AnyRequest) -> str:
    return f"{cookie_name(request.headers.get('host'))}_sign_in"


def _attempt_cookie(request: AnyRequest, value: str, seconds: int) -> Cookie:
    """Make the cookie of a browser that is at the provider; it comes back by a link from there."""
    return Cookie(
        key=_attempt_cookie_name(request),
        value=value,
        max_age=seconds,
        path=CALLBACK,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def _refusal(error: StewardError) -> Response[bytes]:
    code = error.code if isinstance(error, RefusedError) else ErrorCode.UNAVAILABLE
    page = REFUSAL_PAGE.format(reason=escape(str(error)))
    return Response(
        page.encode(),
        media_type=MediaType.HTML,
        status_code=HTTP_STATUS[code],
        headers={**HEADERS, "Cache-Control": "no-store"},
    )
