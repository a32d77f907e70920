"""Signing in at the provider by a code, for the command line, and signing out."""

from litestar import Response
from litestar.params import JSONBody

from schemas.gateway import endpoints
from schemas.gateway.sign_in import (
    DeviceAnswer,
    DeviceAnswerRequest,
    DeviceAnswerState,
    DeviceCode,
    DeviceRequest,
    SignedOut,
    SignInOffer,
)
from schemas.gateway.tokens import AuditKind, Role
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.claims import Person
from services.gateway.routes.common import Caller, TheGateway, record_as, route
from services.gateway.routes.platform.login import AnyRequest, login_cookie


@route(endpoints.SHOW_SIGN_IN)
async def show_sign_in(gateway: TheGateway) -> SignInOffer:
    """Return how people sign in here: at which provider, or with a token alone. No token is asked
    for.
    """
    return await gateway.sign_in.offer()


@route(endpoints.START_DEVICE_SIGN_IN)
async def start_device_sign_in(data: JSONBody[DeviceRequest], gateway: TheGateway) -> DeviceCode:
    """Ask the provider for a code that a person confirms there. No token is asked for."""
    gateway.sign_in.heed_rate()
    return await gateway.sign_in.start_device(data.client)


@route(endpoints.FINISH_DEVICE_SIGN_IN)
async def finish_device_sign_in(
    data: JSONBody[DeviceAnswerRequest], gateway: TheGateway, request: AnyRequest
) -> DeviceAnswer:
    """Return the token of the session, once, when the person has confirmed the code. No token is
    asked for.
    """
    attempt = await gateway.sign_in.claim_device(data.code)
    signed_in = await gateway.sign_in.redeem_device(data.code, attempt)
    if signed_in is None:
        return DeviceAnswer(
            state=DeviceAnswerState.PENDING, interval_seconds=attempt.interval_seconds
        )
    await record_sign_in(signed_in.person, gateway, request)
    return await gateway.sign_in.begin_device_session(signed_in, attempt.client)


@route(endpoints.SIGN_OUT)
async def sign_out(
    gateway: TheGateway, identity: Caller, request: AnyRequest
) -> Response[SignedOut]:
    """End the sign-in that this request comes with, and say where a browser ends it at the
    provider. Of a token of this platform nothing but the browser's login ends.
    """
    url = None
    if identity.login_sha256:
        await gateway.logins.end(identity)
    if identity.sign_in_id is not None:
        url = await gateway.sign_in.sign_out(identity, origin_of(gateway, request))
    answer = SignedOut(provider_url=url if identity.login_sha256 else None)
    return Response(answer, cookies=[login_cookie(request, "", 0)])


async def record_sign_in(person: Person, gateway: Gateway, request: AnyRequest) -> None:
    """Record who is about to be signed in, for what that is worth here."""
    provider = gateway.sign_in.sign_ins.require_provider().name
    identity = Identity(role=Role.VIEWER, name=person.name, provider=provider)
    await record_as(identity, request, AuditKind.SIGN_IN)


def origin_of(gateway: Gateway, request: AnyRequest) -> str:
    """Return where browsers reach this gateway."""
    return gateway.public_url or f"{request.url.scheme}://{request.headers.get('host', '')}"
