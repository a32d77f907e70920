"""The provider's keys, and what they have signed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry, extract_compact

from services.gateway.domain.access import authentication_error
from services.gateway.domain.claims import Claims
from services.gateway.provider.requests import Answer, ProviderAway

# Only what the provider alone can sign: no shared secret, and never `none`.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
MAX_AGE_SECONDS: Final = 240.0  # a key that the provider took away counts so long at most
REFETCH_SECONDS: Final = 10.0  # of unknown keys, which anybody can name
_REGISTRY: Final = JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)


@dataclass(slots=True)
class ProviderKeys:
    """The keys by `fetch`, asked for again when they are old, or a token names another."""

    fetch: Callable[[], Awaitable[Answer]]
    _keys: KeySet = field(default_factory=lambda: KeySet([]))
    _ids: frozenset[str | None] = frozenset()
    _fetched_at: float = float("-inf")
    _tried_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def verify(self, token: str) -> Claims:
        """Return what a token says. Raises RefusedError for one that the provider has not signed,
        ProviderAway where its keys cannot be read.
        """
        header = _header_of(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise authentication_error(
                f"expected a token signed by one of {', '.join(ALGORITHMS)}, found"
                f" {algorithm or 'no algorithm'}"
            )
        await self._load_for(header.get("kid"))
        try:
            return jwt.decode(token, self._keys, registry=_REGISTRY).claims
        except (JoseError, ValueError) as error:
            raise authentication_error(
                f"expected a token that the provider has signed, found another ({error})"
            ) from error

    async def _load_for(self, key_id: str | None) -> None:
        now = asyncio.get_running_loop().time()
        is_known = key_id in self._ids or (key_id is None and self._ids)
        if is_known and now - self._fetched_at < MAX_AGE_SECONDS:
            return
        if now - self._tried_at < REFETCH_SECONDS and self._ids:
            return
        async with self._lock:
            if self._tried_at >= now:
                return
            self._tried_at = asyncio.get_running_loop().time()
            try:
                answer = await self.fetch()
                self._keys, self._ids = _read(answer)
                self._fetched_at = self._tried_at
            except ProviderAway:
                if not self._ids:
                    self._tried_at = float("-inf")
                    raise


def _read(answer: Answer) -> tuple[KeySet, frozenset[str | None]]:
    """Read the keys that sign. One that cannot be read, or is a secret, is left out."""
    keys = []
    for entry in answer.content.get("keys", ()):
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use") == "enc":
            continue
        try:
            keys += KeySet.import_key_set({"keys": [entry]}).keys
        except (JoseError, ValueError, KeyError, TypeError):
            continue
    if not keys:
        raise ProviderAway("the provider's document of keys has none that signs")
    return KeySet(keys), frozenset(key.kid for key in keys)


def _header_of(token: str) -> dict[str, Any]:
    try:
        return dict(extract_compact(token.encode()).headers())
    except (JoseError, ValueError, TypeError) as error:
        raise authentication_error("expected a token, found what is none") from error
