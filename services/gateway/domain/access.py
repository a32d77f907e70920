"""Who may ask: tokens, roles, and the names under which the gateway may be reached."""

import hmac
import re
from collections.abc import Hashable, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple

from schemas.base import LINE_PATTERN
from schemas.errors import ErrorCode
from schemas.gateway import endpoints
from schemas.gateway.tokens import Role, TokenView
from shared.errors import RefusedError
from shared.host_header import is_known_host

DEFAULT_NAMESPACE: Final = "default"
TOKEN_PARAMETER: Final = "access_token"  # noqa: S105  # its name
CSRF_HEADER: Final = "X-CSRF-Token"
STREAMS: Final = frozenset({endpoints.FOLLOW_EVENTS.path, endpoints.FOLLOW_METRICS.path})
# First parts of the paths that are not the web page's.
NOT_THE_PAGE: Final = frozenset(
    {"api", "docs", "healthz", "metrics", "readyz", "schema", "sse", "ws"}
)
MAX_ACCOUNT_CHARACTERS: Final = 100
READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def is_stream(scope: Mapping[str, Any]) -> bool:
    """Return whether the answer to a request of ASGI is a stream."""
    return scope["type"] == "websocket" or scope["path"] in STREAMS


def is_web_page(scope: Mapping[str, Any]) -> bool:
    """Return whether a request of ASGI asks for the web page, which holds no data of this
    installation.
    """
    first = str(scope["path"]).lstrip("/").partition("/")[0]
    return scope["type"] == "http" and scope["method"] == "GET" and first not in NOT_THE_PAGE


class HoldersVisibleTo(StrEnum):
    """Whom the gateway tells who holds a GPU; admins always."""

    NAMESPACE = "namespace"  # those with a token of the holder's namespace
    EVERYBODY = "everybody"


class Identity(Struct, frozen=True, kw_only=True):
    """On whose behalf a request acts: in `namespace` where none is named.

    `caller` is its token's SHA-256, `name` what people call it, both empty without tokens. Limits
    that are None are the gateway's own. `login_sha256` is of the login that a cookie named.

    `person` is whose token it is, empty without tokens and for one of the file, which names nobody;
    `account` who the client says runs it, which nothing proves. `sees_all_holders`: this gateway
    tells everybody who holds what.

    `role` is the highest; `roles` has the namespaces of its own in which it is another. `provider`
    is where somebody signed in, in the sign-in `sign_in_id`, empty with a token of this platform.
    """

    role: Role
    namespace: str = DEFAULT_NAMESPACE
    further_namespaces: tuple[str, ...] = ()
    caller: str = ""
    token_id: UUID | None = None
    name: str = ""
    requests_per_second: float | None = None
    body_limit_bytes: int | None = None
    login_sha256: str = ""
    person: str = ""
    account: str = ""
    sees_all_holders: bool = False
    roles: Mapping[str, Role] = {}
    provider: str = ""
    sign_in_id: UUID | None = None
    ends_at: datetime | None = None

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.namespace, *self.further_namespaces)

    @property
    def sight(self) -> Hashable:
        """Return all that an answer may depend on: those with the same are answered alike."""
        fields = astuple(self)
        return tuple(f if not isinstance(f, Mapping) else tuple(f.items()) for f in fields)

    @property
    def reads_everything(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def readable(self) -> tuple[str, ...] | None:
        """Return the namespaces whose things may be seen; None: everybody's."""
        return None if self.reads_everything else self.namespaces

    def role_in(self, namespace: str) -> Role | None:
        """Return the role in a namespace; None for a foreign one."""
        if self.role is Role.ADMIN:
            return Role.ADMIN
        return self.roles.get(namespace, self.role) if namespace in self.namespaces else None

    @property
    def owned(self) -> tuple[str, ...]:
        """Return the namespaces that the caller owns."""
        return tuple(name for name in self.namespaces if self.role_in(name) is Role.OWNER)

    def reads(self, namespace: str | None) -> bool:
        """Return whether the caller may see what belongs to this namespace."""
        return self.reads_everything or namespace in self.namespaces

    @property
    def names_of(self) -> tuple[str, ...] | None:
        """Return the namespaces whose holders are named to this caller; None: all.

        The one rule of who is told who holds what: in the fleet, the map, reasons and events.
        """
        return None if self.sees_all_holders else self.readable

    def is_told(self, namespace: str | None) -> bool:
        """Return whether who holds something of this namespace is named, by `names_of`."""
        return self.names_of is None or namespace in self.names_of

    def namespace_to_read(self, namespace: str | None) -> str | None:
        """The namespace that a list is of; None, for admins alone, is every one. Raises
        RefusedError for a foreign one.
        """
        if namespace is None:
            return None if self.reads_everything else self.namespace
        if not self.reads(namespace):
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected namespace {' or '.join(self.namespaces)}, found {namespace}",
                path="query.namespace",
            )
        return namespace

    def namespace_for(self, requested_namespace: str | None) -> str:
        """The namespace that a change may be made in. Raises RefusedError."""
        namespace = requested_namespace or self.namespace
        self.require(namespace)
        return namespace

    def require(self, namespace: str) -> None:
        """Raises RefusedError unless something of this namespace may be changed."""
        self.require_role(Role.SUBMITTER)
        if not self.reads(namespace):
            own_namespaces = " or ".join(self.namespaces)
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected something of namespace {own_namespaces}, found {namespace}",
                path="$.namespace",
            )
        role = self.role_in(namespace)
        if role is Role.VIEWER:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected a submitter of namespace {namespace}, found a viewer of it",
                path="$.namespace",
            )

    def require_owner(self, namespace: str) -> None:
        """Raises RefusedError for who neither owns this namespace nor is an admin."""
        if self.role_in(namespace) not in {Role.OWNER, Role.ADMIN}:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected an owner of namespace {namespace} or an admin, found"
                f" {_with_article(self.role_in(namespace))} there",
            )

    @property
    def requester(self) -> str:
        """Return who is recorded as asking; empty: nobody is known.

        An account is taken from an admin's client alone, which might name anybody anyway.
        """
        return self.person or (self.account if self.role is Role.ADMIN else "")

    def requester_for(self, requester: str | None, path: str) -> str:
        """Return who is to be recorded as asking. Raises RefusedError for somebody else's name,
        unless an admin acts for them.
        """
        if not requester or requester == self.requester or self.role is Role.ADMIN:
            return requester or self.requester
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"expected no requester or {self.requester or 'a token with a name'}, found"
            f" {requester}; only an admin asks for somebody else",
            path=path,
        )

    def require_role(self, role: Role) -> None:
        """Raises RefusedError unless the caller may do what this role may."""
        if self.role.rank >= role.rank:
            return
        if role is Role.SUBMITTER:
            raise RefusedError(ErrorCode.FORBIDDEN, "expected a submitter, found a viewer's token")
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"expected {_with_article(role)}'s token, found {_with_article(self.role)}'s",
        )


def _with_article(role: Role | None) -> str:
    if role is None:
        return "nobody"
    return f"{'an' if role.value[0] in 'ao' else 'a'} {role.value}"


FULL_ACCESS: Final = Identity(role=Role.ADMIN)


def identify(token: TokenView | None, digest: str, now: datetime) -> Identity:
    """Return the identity of a token's owner.

    Raises RefusedError for None, an unknown token, and one that is expired or revoked.
    """
    if token is None:
        raise authentication_error("expected a known token, found an unknown one")
    if token.revoked_at is not None:
        raise authentication_error(
            "expected a token that counts, found one that was revoked", token
        )
    if token.expires_at is not None and token.expires_at <= now:
        raise authentication_error(
            "expected a token that counts, found one that has expired", token
        )
    return Identity(
        role=token.role,
        namespace=token.namespaces[0],
        further_namespaces=token.namespaces[1:],
        caller=digest,
        token_id=token.token_id,
        name=token.name,
        person="" if token.from_file else (token.person or token.name),
        requests_per_second=token.requests_per_second,
        body_limit_bytes=token.body_limit_bytes,
        ends_at=token.expires_at,
    )


def no_token() -> RefusedError:
    """Build the error for a request without a token."""
    return RefusedError(
        ErrorCode.UNAUTHENTICATED,
        "expected a token, found none; `gpusteward login URL` signs in where the platform has an"
        " OpenID provider, and whoever runs it makes tokens by `gpusteward token create`",
    )


class SignInRefused(RefusedError):
    """Who asks shows nothing that counts; `name` is of the token that it was, if any."""

    def __init__(self, message: str, token: TokenView | None = None) -> None:
        super().__init__(ErrorCode.UNAUTHENTICATED, message)
        self.name = token.name if token is not None else ""
        self.token_id = token.token_id if token is not None else None


def authentication_error(detail: str, token: TokenView | None = None) -> SignInRefused:
    """Build the error for who shows nothing that counts."""
    return SignInRefused(detail, token)


def cookie_name(host_header: str | None) -> str:
    """Return the cookie's name, made of the port: browsers share cookies among all ports of a
    host.
    """
    port = _split(f"//{host_header or ''}").netloc.rpartition(":")[2]
    return f"gpusteward_{port}" if port.isascii() and port.isdigit() else "gpusteward"


def login_in(cookies: str, host_header: str | None) -> str | None:
    """The secret of a login among a browser's cookies."""
    for part in cookies.split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(host_header) and value:
            return value
    return None


def csrf_token_of(login_sha256: str) -> str:
    """Return the token that only a page of this gateway can know of a login: no other receives
    it.
    """
    return sha256(f"csrf {login_sha256}".encode()).hexdigest()


def check_csrf(identity: Identity, token: str | None) -> None:
    """Refuse a change that another page had a browser send with its cookies."""
    expected = csrf_token_of(identity.login_sha256)
    if not hmac.compare_digest(expected.encode(), (token or "").encode()):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"expected the header {CSRF_HEADER} with what /api/v1/me says, found"
            f" {'another' if token else 'none'}",
        )


def account_in(header: bytes) -> str:
    """The account that a client says runs it; empty for what people cannot be shown."""
    account = unquote(header.decode("latin-1"))
    return (
        account
        if len(account) <= MAX_ACCOUNT_CHARACTERS and re.match(LINE_PATTERN, account)
        else ""
    )


def check_host(header: str | None, names: frozenset[str] | None) -> None:
    """Refuse a foreign Host. With `names` None, on every address, the token alone protects."""
    if not is_known_host(header, names):
        raise RefusedError(
            ErrorCode.FORBIDDEN, f"expected a Host of this gateway, found {header or 'none'}"
        )


def check_origin(origin: str | None, host_header: str | None) -> None:
    """Refuse what a foreign web page sends; programs send no Origin."""
    if origin is None:
        return
    authority = _split(origin).netloc.lower()
    if not authority or authority != (host_header or "").lower():
        raise RefusedError(ErrorCode.FORBIDDEN, f"expected no foreign Origin, found {origin}")


def _split(url: str) -> SplitResult:
    """The parts of a URL; all are empty of one that cannot be read."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
