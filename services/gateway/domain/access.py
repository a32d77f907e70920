"""Who may ask: tokens, roles, and the names under which the gateway may be reached."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from schemas.errors import ErrorCode
from schemas.tokens import Role, Token
from shared.errors import RefusedError
from shared.host_header import is_known_host

DEFAULT_NAMESPACE: Final = "default"
TOKEN_PARAMETER: Final = "access_token"  # noqa: S105  # its name
READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Identity(Struct, frozen=True, kw_only=True):
    """On whose behalf a request acts. `caller` is its token's SHA-256, empty without tokens."""

    role: Role
    namespace: str = DEFAULT_NAMESPACE
    caller: str = ""

    def namespace_for(self, asked: str | None) -> str:
        """The namespace that a change may be made in. Raises RefusedError."""
        namespace = asked or self.namespace
        self.require(namespace)
        return namespace

    def require(self, namespace: str) -> None:
        """Raises RefusedError unless something of this namespace may be changed."""
        if self.role is Role.VIEWER:
            raise RefusedError(ErrorCode.FORBIDDEN, "expected a submitter, found a viewer's token")
        if self.role is not Role.ADMIN and namespace != self.namespace:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                f"expected something of namespace {self.namespace}, found {namespace}",
                path="$.namespace",
            )

    def require_admin(self) -> None:
        """Raises RefusedError unless what belongs to everybody may be changed."""
        if self.role is not Role.ADMIN:
            raise RefusedError(
                ErrorCode.FORBIDDEN, f"expected an admin's token, found a {self.role.value}'s"
            )


EVERYTHING: Final = Identity(role=Role.ADMIN)


def identify(tokens: Sequence[Token], presented: str | None) -> Identity:
    """Whose token this is. Raises RefusedError."""
    if presented is None:
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED,
            "expected a token, found none; whoever runs this platform makes one by"
            " `gpusteward token create`",
        )
    digest = hashlib.sha256(presented.encode()).hexdigest()
    for token in tokens:
        if hmac.compare_digest(token.token_sha256, digest):
            return Identity(role=token.role, namespace=token.namespace, caller=digest)
    raise RefusedError(ErrorCode.UNAUTHENTICATED, "expected a known token, found an unknown one")


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
