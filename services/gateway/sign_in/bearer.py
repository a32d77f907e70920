"""Access tokens of the provider at the API: verified here, and confirmed by it every 4 minutes."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from schemas.gateway.tokens import Role
from services.gateway.domain.access import Identity, authentication_error
from services.gateway.domain.claims import LEEWAY_SECONDS, Claims, Expectation, Person
from services.gateway.domain.token_rules import identity_of
from services.gateway.ledger.sign_ins import AWAY_SECONDS, RECHECK_SECONDS, SignIns
from services.gateway.provider.client import OPENID, Provider
from services.gateway.provider.requests import ProviderAway
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.local_platform.tokens import digest_of
from shared.logging import log

MAX_TOKENS: Final = 10_000


@dataclass(slots=True)
class _AccessToken:
    """What is remembered of a token: whom it is of, and when the provider said so last."""

    claims: Claims
    person: Person
    confirmed_at: float
    refusal: RefusedError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    away_until: float = 0.0

    @property
    def ends_at(self) -> float:
        return float(self.claims["exp"])


@dataclass(slots=True)
class BearerTokens:
    """Counts where `provider.audience` says for whom such tokens are; in memory by their digest."""

    sign_ins: SignIns
    _tokens: OrderedDict[str, _AccessToken] = field(default_factory=OrderedDict)

    def takes(self, presented: str) -> bool:
        """Return whether this may be a token of the provider, which no token of ours looks like."""
        provider = self.sign_ins.provider
        return provider is not None and bool(provider.audience) and _is_signed_token(presented)

    async def identify(self, presented: str) -> Identity:
        """Return the identity of a token's owner. Raises RefusedError, UnavailableError where the
        provider cannot be asked about a token that it has not confirmed yet.
        """
        provider = self.sign_ins.require_provider()
        token = await self._load(provider, presented)
        now = utcnow().timestamp()
        if token.ends_at <= now - LEEWAY_SECONDS:
            raise authentication_error("expected a token that counts, found one that has expired")
        if token.refusal is None and now - token.confirmed_at >= RECHECK_SECONDS:
            await self._confirm(provider, token, presented)
        if token.refusal is not None:
            raise token.refusal
        rights = await self.sign_ins.rights_of(token.person)
        caller = digest_of(f"{provider.issuer} {token.person.subject}")
        base = Identity(role=Role.VIEWER, caller=caller)
        return identity_of(token.person.name, rights, provider.name, base)

    async def _load(self, provider: Provider, presented: str) -> _AccessToken:
        digest = digest_of(presented)
        if (token := self._tokens.get(digest)) is not None:
            self._tokens.move_to_end(digest)
            return token
        expectation = Expectation(
            issuer=provider.issuer, audience=provider.audience, is_access_token=True
        )
        claims = await provider.verify(presented, expectation)
        # Its issue is the provider's word as well.
        issued_at = float(claims.get("iat") or 0.0)
        token = _AccessToken(claims, provider.person_in(claims), min(issued_at, _now()))
        if _now() - token.confirmed_at >= RECHECK_SECONDS:
            await self._ask(provider, token, presented)
        self._tokens[digest] = token
        while len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)
        return token

    async def _confirm(self, provider: Provider, token: _AccessToken, presented: str) -> None:
        """Ask the provider once for all requests that wait for that."""
        async with token.lock:
            unchecked_seconds = _now() - token.confirmed_at
            if token.refusal is not None or unchecked_seconds < RECHECK_SECONDS:
                return
            try:
                if token.away_until <= _now():
                    await self._ask(provider, token, presented)
                    return
            except ProviderAway as error:
                token.away_until = _now() + AWAY_SECONDS
                log.warning("provider_away", reason=str(error))
            if unchecked_seconds >= RECHECK_SECONDS + self.sign_ins.grace.total_seconds():
                raise authentication_error(
                    f"{provider.name} has confirmed this token last"
                    f" {unchecked_seconds / 60:.0f} minutes ago; try again once it answers"
                )

    async def _ask(self, provider: Provider, token: _AccessToken, presented: str) -> None:
        try:
            answer = await self._ask_about(provider, token, presented)
        except RefusedError as error:
            token.refusal = error
            return
        # Groups are those of the answer, also if it has none: the token's may be gone by now.
        stale = {provider.groups_claim, provider.groups_claim.partition(".")[0]}
        lasting = {name: value for name, value in token.claims.items() if name not in stale}
        token.person = provider.person_in({**lasting, **answer, "sub": token.claims["sub"]})
        token.confirmed_at = _now()

    async def _ask_about(self, provider: Provider, token: _AccessToken, presented: str) -> Claims:
        """Ask in the way that the provider has for such a token."""
        scopes = str(token.claims.get("scope") or token.claims.get("scp") or "").split()
        if OPENID in scopes:
            return await provider.user_info(presented, str(token.claims["sub"]))
        if await provider.can_introspect():
            return await provider.introspect(presented)
        raise authentication_error(
            f"{provider.name} cannot be asked about this token, which counts for"
            f" {RECHECK_SECONDS / 60:.0f} minutes from its issue then; ask for the scope `openid`"
            " with it, or for a new one"
        )


def _now() -> float:
    return utcnow().timestamp()


def _is_signed_token(text: str) -> bool:
    """Return whether a text has the form of a signed token, as no token of ours has."""
    return text.count(".") == 2 and text.startswith("eyJ")
