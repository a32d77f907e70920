"""A small OpenID provider on a port of its own: real keys, real signatures, real HTTP. What it says
and whether it answers is up to the test.
"""

import base64
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.support.http_server import serving

CLIENT = "gpusteward"
SECRET = "of the client"
AUDIENCE = "gpusteward-api"


@dataclass
class Account:
    """Somebody whom the provider has."""

    name: str
    groups: list[str] = field(default_factory=list)
    is_enabled: bool = True

    @property
    def subject(self) -> str:
        return f"id-of-{self.name}"


@dataclass
class LocalProvider:
    """The provider's state, which tests change. `account` is who signs in next."""

    issuer: str = ""
    accounts: dict[str, Account] = field(default_factory=dict)
    signs_in: str = "ada"
    is_away: bool = False
    gives_refresh_tokens: bool = True
    code_seconds: int = 600
    nonce: str | None = None  # put into ID tokens in place of the one that was asked for
    requests: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    key: RSAKey = field(default_factory=lambda: make_key())
    published: list[RSAKey] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _refresh: dict[str, str] = field(default_factory=dict)
    _access: dict[str, str] = field(default_factory=dict)
    _devices: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published = [self.key]

    def add(self, name: str, *groups: str) -> Account:
        self.accounts[name] = Account(name, list(groups))
        return self.accounts[name]

    def rotate(self) -> None:
        """A new key signs from now on, and the old one counts no more."""
        self.key = make_key()
        self.published = [self.key]

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        header = {"alg": "RS256", "kid": self.key.kid, **header}
        return jwt.encode(header, claims, self.key)

    def claims_of(self, name: str, audience: str, **claims: Any) -> dict[str, Any]:
        account, now = self.accounts[name], int(time.time())
        about = {"preferred_username": account.name, "groups": account.groups}
        base = {"iss": self.issuer, "sub": account.subject, "aud": audience, "iat": now}
        return {**base, "exp": now + 300, **about, **claims}

    def access_token(self, name: str, **claims: Any) -> str:
        fields = {"scope": "openid", "jti": secrets.token_hex(8), **claims}
        token = self.sign(self.claims_of(name, AUDIENCE, **fields))
        self._access[token] = name
        return token

    def confirm_device(self, name: str | None = None) -> None:
        """Somebody enters the code of every device that waits."""
        for code in self._devices:
            self._devices[code] = name or self.signs_in

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/openid-configuration", self._discovery),
            web.get("/keys", self._keys),
            web.get("/authorize", self._authorize),
            web.post("/token", self._token),
            web.get("/userinfo", self._user_info),
            web.post("/introspect", self._introspect),
            web.post("/device", self._device),
            web.post("/revoke", self._revoke),
        ]

    @web.middleware
    async def gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.is_away:
            return web.Response(status=503)
        return await handler(request)  # type: ignore[no-any-return]

    async def _discovery(self, _: web.Request) -> web.Response:
        paths = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "userinfo_endpoint": "/userinfo",
            "introspection_endpoint": "/introspect",
            "device_authorization_endpoint": "/device",
            "revocation_endpoint": "/revoke",
            "end_session_endpoint": "/logout",
            "jwks_uri": "/keys",
        }
        addresses = {name: self.issuer + path for name, path in paths.items()}
        return web.json_response({"issuer": self.issuer, **addresses})

    async def _keys(self, _: web.Request) -> web.Response:
        return web.json_response(KeySet(list(self.published)).as_dict(private=False))

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        code = secrets.token_hex(16)
        self._codes[code] = {**query, "name": self.signs_in}
        back = urlencode({"code": code, "state": query["state"]})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        match form["grant_type"]:
            case "authorization_code":
                asked = self._codes.pop(str(form["code"]), None)
                if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
                    return refusal("invalid_grant", "Code not valid")
                return self._give(asked["name"], asked["nonce"])
            case "refresh_token":
                name = self._refresh.pop(str(form["refresh_token"]), None)
                if name is None or not self.accounts[name].is_enabled:
                    return refusal("invalid_grant", "User disabled")
                return self._give(name, None)
            case _:
                name = self._devices.get(str(form["device_code"]))
                if name is None:
                    return refusal("authorization_pending", "not yet")
                return self._give(name, None)

    def _give(self, name: str, nonce: str | None) -> web.Response:
        further = {"nonce": self.nonce or nonce} if nonce else {}
        refresh_token = secrets.token_hex(16) if self.gives_refresh_tokens else ""
        self._refresh[refresh_token] = name
        return web.json_response(
            {
                "access_token": self.access_token(name),
                "refresh_token": refresh_token,
                "id_token": self.sign(self.claims_of(name, CLIENT, **further)),
                "token_type": "Bearer",
            }
        )

    def _account_of(self, token: str) -> Account | None:
        account = self.accounts.get(self._access.get(token, ""))
        return account if account is not None and account.is_enabled else None

    async def _user_info(self, request: web.Request) -> web.Response:
        account = self._account_of(request.headers["Authorization"].removeprefix("Bearer "))
        if account is None:
            return refusal("invalid_token", "User disabled", 401)
        return web.json_response(
            {
                "sub": account.subject,
                "preferred_username": account.name,
                **({"groups": account.groups} if account.groups else {}),
            }
        )

    async def _introspect(self, request: web.Request) -> web.Response:
        account = self._account_of(str((await request.post())["token"]))
        if account is None:
            return web.json_response({"active": False})
        return web.json_response({"active": True, "groups": account.groups})

    async def _device(self, _: web.Request) -> web.Response:
        code = secrets.token_hex(16)
        self._devices[code] = None
        address = f"{self.issuer}/device"
        return web.json_response(
            {
                "device_code": code,
                "user_code": "ABCD-EFGH",
                "verification_uri": address,
                "verification_uri_complete": f"{address}?user_code=ABCD-EFGH",
                "interval": 0.1,
                "expires_in": self.code_seconds,
            }
        )

    async def _revoke(self, request: web.Request) -> web.Response:
        self.revoked.append(str((await request.post())["token"]))
        return web.Response()


def make_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})


def unsigned(claims: dict[str, Any]) -> str:
    """A token that says of itself that nobody signed it."""
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def signed_with_secret(claims: dict[str, Any], key: RSAKey) -> str:
    """A token for those who take a public key for a shared secret."""
    content = f"{_encoded({'alg': 'HS256', 'kid': key.kid})}.{_encoded(claims)}"
    digest = hmac.digest(key.as_pem(private=False), content.encode(), "sha256")
    return f"{content}.{_base64(digest)}"


def _encoded(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def refusal(error: str, description: str, status: int = 400) -> web.Response:
    return web.json_response({"error": error, "error_description": description}, status=status)


@asynccontextmanager
async def local_provider() -> AsyncIterator[LocalProvider]:
    """A provider that answers, with nobody in it."""
    provider = LocalProvider()
    application = web.Application(middlewares=[provider.gate])
    application.add_routes(provider.routes())
    async with serving(application) as provider.issuer:
        yield provider
