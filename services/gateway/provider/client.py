"""What this platform asks an OpenID provider: OpenID Connect, RFC 6749, 7009, 7662 and 8628."""

import asyncio
import base64
import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from schemas.errors import ErrorCode
from services.gateway.domain.access import authentication_error
from services.gateway.domain.claims import (
    Claims,
    Expectation,
    Person,
    check_claims,
    person_in,
    value_at,
)
from services.gateway.provider.requests import Answer, ProviderAway, check_address, send_request
from shared.clock import utcnow
from shared.errors import RefusedError

if TYPE_CHECKING:
    from services.gateway.provider.keys import ProviderKeys

DISCOVERY: Final = "/.well-known/openid-configuration"
OPENID: Final = "openid"  # the scope that makes it OpenID Connect
DISCOVERY_SECONDS: Final = 3600.0
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
# RFC 8628: the person has not confirmed yet.
PENDING: Final = frozenset({"authorization_pending", "slow_down"})
# The provider takes it back, or the person said no.
TAKEN_BACK: Final = frozenset({"invalid_grant", "access_denied", "expired_token"})


class ProviderClient(Struct, frozen=True):
    """What the provider knows this platform by; a public client has no secret."""

    client_id: str
    secret: str = ""


class ProviderTokens(Struct, frozen=True, kw_only=True):
    """What the provider gave for one sign-in. `client_id` is of the client that asked."""

    client_id: str
    access_token: str = ""
    refresh_token: str = ""
    id_token: str = ""


class SignedIn(Struct, frozen=True, kw_only=True):
    """Whom the provider says, and with what it can be asked again."""

    person: Person
    tokens: ProviderTokens


class DeviceGrant(Struct, frozen=True, kw_only=True):
    """A code that somebody is to confirm."""

    device_code: str
    user_code: str
    verification_url: str
    complete_url: str | None
    interval_seconds: float
    ends_in_seconds: float


@dataclass(slots=True)
class Provider:
    """One OpenID provider. Every method raises ProviderAway where it does not answer, RefusedError
    where it says no.
    """

    issuer: str
    client: ProviderClient
    name: str = ""
    device_client: ProviderClient | None = None
    audience: str = ""
    scopes: str = "openid profile email"
    name_claim: str = ""
    groups_claim: str = "groups"
    tls: ssl.SSLContext | bool = True
    _document: Mapping[str, Any] = field(default_factory=dict)
    _read_at: float = float("-inf")
    _keys: "ProviderKeys" = field(init=False)

    def __post_init__(self) -> None:
        # Here, as a gateway without a provider has no keys, and what reads them takes 10 MiB.
        from services.gateway.provider.keys import ProviderKeys

        self._keys = ProviderKeys(self._fetch_keys)
        self.name = self.name or urlsplit(self.issuer).hostname or self.issuer

    async def authorization_url(
        self, redirect_url: str, state: str, nonce: str, verifier: str
    ) -> str:
        """Return where a browser signs in, by RFC 7636 with the digest of `verifier`."""
        query = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": redirect_url,
            "scope": self.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": _challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        return _with_query(await self._endpoint("authorization_endpoint"), query)

    async def redeem(self, code: str, redirect_url: str, verifier: str, nonce: str) -> SignedIn:
        """Return who signed in with this code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": verifier,
        }
        return await self._read(await self._ask_tokens(form, self.client), self.client, nonce)

    async def refresh(self, tokens: ProviderTokens, subject: str) -> SignedIn:
        """Return who it is now that signed in then; somebody else is refused."""
        client = self._client_of(tokens.client_id)
        if tokens.refresh_token:
            form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
            answer = await self._ask_tokens(form, client)
            if not answer.content.get("id_token"):
                access_token = str(answer.content.get("access_token", ""))
                claims = await self.user_info(access_token, subject)
                new_tokens = _tokens_in(answer, client, tokens)
                return SignedIn(person=self.person_in(claims), tokens=new_tokens)
            renewed = await self._read(answer, client, None, tokens)
        else:
            claims = await self.user_info(tokens.access_token, subject)
            renewed = SignedIn(person=self.person_in(claims), tokens=tokens)
        if renewed.person.subject != subject:
            raise authentication_error("the provider now says that this is somebody else")
        return renewed

    async def user_info(self, access_token: str, subject: str) -> Claims:
        """Return what the provider says now of the owner of an access token."""
        url = await self._endpoint("userinfo_endpoint")
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = await send_request(url, headers=headers, tls=self.tls)
        if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise authentication_error(
                f"{self.name} no longer says who this is"
                f"{f' ({answer.detail})' if answer.detail else ''}; sign in again"
            )
        if answer.status != HTTPStatus.OK:
            raise ProviderAway(f"{self.name} answers {answer.status} at {url}")
        if answer.content.get("sub") != subject:
            raise authentication_error(f"{self.name} says of this token that it is somebody else's")
        return answer.content

    async def introspect(self, token: str) -> Claims:
        """Return what the provider says now of an access token."""
        url = await self._endpoint("introspection_endpoint")
        answer = await self._post(url, {"token": token}, self.client)
        if answer.status != HTTPStatus.OK:
            raise ProviderAway(f"{self.name} answers {answer.status} at {url}: {answer.detail}")
        if answer.content.get("active") is not True:
            raise authentication_error(f"{self.name} says that this token counts no more")
        return answer.content

    async def can_introspect(self) -> bool:
        """Return whether the provider tells this client about tokens."""
        document = await self._discover()
        return bool(self.client.secret and document.get("introspection_endpoint"))

    async def start_device(self) -> DeviceGrant:
        """Ask for a code that a person confirms elsewhere."""
        client = self.device_client or self.client
        url = await self._endpoint("device_authorization_endpoint")
        answer = await self._post(url, {"scope": self.scopes}, client)
        content = answer.content
        address = content.get("verification_uri") or content.get("verification_url")
        if answer.status != HTTPStatus.OK or not address or not content.get("device_code"):
            raise ProviderAway(
                f"{self.name} gives no code for a sign-in by device ({answer.status}:"
                f" {answer.detail or 'no code'}); its client needs the device grant"
            )
        return DeviceGrant(
            device_code=str(content["device_code"]),
            user_code=str(content.get("user_code", "")),
            verification_url=str(address),
            complete_url=content.get("verification_uri_complete"),
            interval_seconds=_seconds(content.get("interval"), 5.0),
            ends_in_seconds=_seconds(content.get("expires_in"), 600.0),
        )

    async def redeem_device(self, device_code: str) -> SignedIn | None:
        """Return who confirmed a code; None: nobody yet."""
        client = self.device_client or self.client
        form = {"grant_type": DEVICE_GRANT, "device_code": device_code}
        answer = await self._post(await self._endpoint("token_endpoint"), form, client)
        if answer.error in PENDING:
            return None
        return await self._read(self._check(answer), client, None)

    async def has_device_flow(self) -> bool:
        return bool((await self._discover()).get("device_authorization_endpoint"))

    async def logout_url(self, id_token: str, back_url: str) -> str | None:
        """Return where a browser ends its session at the provider; None: it has no such place."""
        url = (await self._discover()).get("end_session_endpoint")
        if not url:
            return None
        query = {
            "client_id": self.client.client_id,
            "post_logout_redirect_uri": back_url,
            **({"id_token_hint": id_token} if id_token else {}),
        }
        return _with_query(str(url), query)

    async def revoke(self, tokens: ProviderTokens) -> None:
        """Have what this platform was given count no more, where the provider can do that."""
        url = (await self._discover()).get("revocation_endpoint")
        token = tokens.refresh_token or tokens.access_token
        if url and token:
            await self._post(str(url), {"token": token}, self._client_of(tokens.client_id))

    async def verify(self, token: str, expectation: Expectation) -> Claims:
        """Return what a token says whose signature and claims count."""
        claims = await self._keys.verify(token)
        check_claims(claims, expectation, utcnow().timestamp())
        return claims

    def person_in(self, claims: Claims) -> Person:
        """Return whom claims are about."""
        return person_in(claims, self.name_claim, self.groups_claim)

    async def _read(
        self,
        answer: Answer,
        client: ProviderClient,
        nonce: str | None,
        tokens_before: ProviderTokens | None = None,
    ) -> SignedIn:
        tokens = _tokens_in(answer, client, tokens_before)
        expectation = Expectation(issuer=self.issuer, audience=client.client_id, nonce=nonce)
        if not answer.content.get("id_token"):
            raise authentication_error(
                f"{self.name} gave no ID token; expected the scope `openid` among"
                " GPUSTEWARD_GATEWAY_OIDC_SCOPES"
            )
        claims = await self.verify(tokens.id_token, expectation)
        has_user_info = bool((await self._discover()).get("userinfo_endpoint"))
        if value_at(claims, self.groups_claim) is None and has_user_info and tokens.access_token:
            more = await self.user_info(tokens.access_token, str(claims["sub"]))
            claims = {**claims, **more}
        return SignedIn(person=self.person_in(claims), tokens=tokens)

    async def _ask_tokens(self, form: Mapping[str, str], client: ProviderClient) -> Answer:
        return self._check(await self._post(await self._endpoint("token_endpoint"), form, client))

    def _check(self, answer: Answer) -> Answer:
        """Return an answer with tokens. What is wrong with this platform's client, rather than with
        the person, leaves everybody as if the provider were away.
        """
        if answer.error in TAKEN_BACK:
            raise authentication_error(f"{self.name} says no: {answer.detail}; sign in again")
        if answer.status != HTTPStatus.OK:
            raise ProviderAway(
                f"{self.name} gives this platform no tokens ({answer.status}: {answer.detail});"
                " an admin compares the client's id, secret and grants with the settings"
                " GPUSTEWARD_GATEWAY_OIDC_*"
            )
        return answer

    async def _post(self, url: str, form: Mapping[str, str], client: ProviderClient) -> Answer:
        """Post a form as this client, by the way of proving it that the provider takes."""
        if not client.secret:
            return await send_request(url, {**form, "client_id": client.client_id}, tls=self.tls)
        document = await self._discover()
        ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" not in ways and "client_secret_post" in ways:
            secret = {"client_id": client.client_id, "client_secret": client.secret}
            return await send_request(url, {**form, **secret}, tls=self.tls)
        login = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        return await send_request(url, form, headers=headers, tls=self.tls)

    def _client_of(self, client_id: str) -> ProviderClient:
        for client in (self.client, self.device_client):
            if client is not None and client.client_id == client_id:
                return client
        raise authentication_error("this sign-in is of a client that this platform has no more")

    async def _endpoint(self, name: str) -> str:
        url = (await self._discover()).get(name)
        if not isinstance(url, str) or not url:
            raise RefusedError(
                ErrorCode.UNSUPPORTED, f"{self.name} has no {name.replace('_', ' ')}"
            )
        return url

    async def _discover(self) -> Mapping[str, Any]:
        now = asyncio.get_running_loop().time()
        if now - self._read_at < DISCOVERY_SECONDS:
            return self._document
        try:
            answer = await send_request(self.issuer.rstrip("/") + DISCOVERY, tls=self.tls)
            self._document, self._read_at = self._check_document(answer), now
        except ProviderAway:
            if not self._document:
                raise
        return self._document

    def _check_document(self, answer: Answer) -> dict[str, Any]:
        document = answer.content
        if answer.status != HTTPStatus.OK or document.get("issuer") != self.issuer:
            raise ProviderAway(
                f"expected the OpenID document of {self.issuer} (GPUSTEWARD_GATEWAY_OIDC_ISSUER),"
                f" found {answer.status} and the issuer {document.get('issuer', 'nobody')}"
            )
        for name, value in document.items():
            if name.endswith("_endpoint") or name == "jwks_uri":
                try:
                    check_address(str(value), name)
                except ValueError as error:
                    raise ProviderAway(f"{self.name}: {error}") from error
        return document

    async def _fetch_keys(self) -> Answer:
        return await send_request(await self._endpoint("jwks_uri"), tls=self.tls)


def _tokens_in(
    answer: Answer, client: ProviderClient, earlier: ProviderTokens | None
) -> ProviderTokens:
    """Read the tokens of an answer; what it does not give anew stays."""
    fields = {
        name: str(answer.content.get(name) or (getattr(earlier, name) if earlier else ""))
        for name in ("access_token", "refresh_token", "id_token")
    }
    return ProviderTokens(client_id=client.client_id, **fields)


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
