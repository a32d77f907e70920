"""Who is asking, and browsers' logins."""

from typing import Any

from litestar import Request, Response
from litestar.datastructures import Cookie
from litestar.params import JSONBody
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.tokens import AuditKind, Login, LoginLink, Me
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity, cookie_name, csrf_token_of
from services.gateway.ledger import logins
from services.gateway.routes.common import (
    Caller,
    TheGateway,
    record_as,
    route,
)
from shared.errors import RefusedError
from shared.local_platform.tokens import digest_of

AnyRequest = Request[Any, Any, Any]


@route(endpoints.SHOW_ME)
async def show_me(gateway: TheGateway, identity: Caller) -> Me:
    """Return the owner of this token or login, and what it may do."""
    return _me(identity, gateway.tokens.are_required)


@route(endpoints.LOG_IN)
async def log_in(data: JSONBody[Login], gateway: TheGateway, request: AnyRequest) -> Response[Me]:
    """Have a browser's cookie stand for a token, for twelve hours at most; a change then also needs
    the answer's `csrf_token` as the header X-CSRF-Token.

    The `code` of a login link stands for the token of who made it, once.
    """
    _require_tokens(gateway)
    identity = await _identify(data, gateway)
    await record_as(identity, request, AuditKind.SIGN_IN)
    secret = await gateway.logins.begin(identity)
    cookie = login_cookie(request, secret, logins.LOGIN_SECONDS)
    me = _me(identity, asks_for_tokens=True, csrf_token=csrf_token_of(digest_of(secret)))
    return Response(me, cookies=[cookie])


@route(endpoints.MAKE_LOGIN_LINK)
async def make_login_link(gateway: TheGateway, identity: Caller) -> LoginLink:
    """A code that logs one browser in, as the caller, within ten minutes. For who shows a token."""
    _require_tokens(gateway)
    if identity.token_id is None or identity.login_sha256:
        raise RefusedError(ErrorCode.FORBIDDEN, "expected a token, found a browser's login")
    return await gateway.logins.make_link(identity)


@route(endpoints.LOG_OUT)
async def log_out(gateway: TheGateway, identity: Caller, request: AnyRequest) -> Response[None]:
    """End the login that this request comes with; without one nothing is changed."""
    if identity.login_sha256:
        await gateway.logins.end(identity)
    return Response(None, cookies=[login_cookie(request, "", 0)])


def _require_tokens(gateway: Gateway) -> None:
    if not gateway.tokens.are_required:
        raise RefusedError(
            ErrorCode.CONFLICT, "this gateway asks for no tokens: its page opens without a login"
        )


async def _identify(data: Login, gateway: Gateway) -> Identity:
    """Whom a login is for. Raises RefusedError."""
    if data.token is not None and data.code is None:
        return await gateway.tokens.identify(data.token)
    if data.code is not None and data.token is None:
        token_id, account = await gateway.logins.take_link(data.code)
        return replace(await gateway.tokens.identify_owner(token_id), account=account)
    raise RefusedError(
        ErrorCode.BAD_REQUEST, "expected either a token or the code of a login link", path="$"
    )


def _me(identity: Identity, asks_for_tokens: bool, csrf_token: str | None = None) -> Me:
    if identity.login_sha256:
        csrf_token = csrf_token_of(identity.login_sha256)
    return Me(
        role=identity.role,
        namespaces=identity.namespaces,
        name=identity.name,
        token_id=identity.token_id,
        asks_for_tokens=asks_for_tokens,
        csrf_token=csrf_token,
        person=identity.requester,
        roles=dict(identity.roles),
        provider=identity.provider or None,
        ends_at=identity.ends_at,
    )


def login_cookie(request: AnyRequest, value: str, seconds: int) -> Cookie:
    """Make the cookie that stands for a login; of 0 seconds it takes that away."""
    return Cookie(
        key=cookie_name(request.headers.get("host")),
        value=value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
