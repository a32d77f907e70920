"""Signing in by a browser, and by a code that is confirmed elsewhere."""

import asyncio
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from schemas.errors import ErrorCode
from schemas.gateway.sign_in import DeviceAnswer, DeviceAnswerState, DeviceCode, SignInOffer
from services.gateway.domain.access import Identity
from services.gateway.domain.request_rate import RequestRates
from services.gateway.ledger.logins import LOGIN_SECONDS, Logins
from services.gateway.ledger.sign_in_attempts import (
    BrowserAttempt,
    DeviceAttempt,
    SignInAttempts,
)
from services.gateway.ledger.sign_ins import SignIns
from services.gateway.ledger.tokens import TokenStore
from services.gateway.provider.client import SignedIn
from services.gateway.provider.requests import ProviderAway
from shared.clock import utcnow
from shared.errors import RefusedError

SECRET_BYTES: Final = 32
DEVICE_SECONDS: Final = 30 * 86_400.0  # the provider's word ends it earlier
BROWSER_SESSION: Final = "browser"
STARTS_PER_SECOND: Final = 10.0


@dataclass(frozen=True, slots=True)
class SignInFlows:
    """Where nobody can sign in every method raises RefusedError, but for `offer`."""

    sign_ins: SignIns
    attempts: SignInAttempts
    tokens: TokenStore
    logins: Logins
    _rates: RequestRates = field(default_factory=RequestRates)

    def heed_rate(self) -> None:
        """Raises RefusedError where more sign-ins begin than people do, without a token each."""
        now = asyncio.get_running_loop().time()
        if wait_seconds := self._rates.take("", STARTS_PER_SECOND, now):
            raise RefusedError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"expected at most {STARTS_PER_SECOND:g} sign-ins to begin each second, found more",
                details={"retry_after_seconds": round(wait_seconds, 3)},
            )

    async def offer(self) -> SignInOffer:
        """Return how people sign in here, as far as the provider says now."""
        provider = self.sign_ins.provider
        if provider is None:
            return SignInOffer()
        try:
            has_device_flow = await provider.has_device_flow()
        except (ProviderAway, RefusedError):
            has_device_flow = False
        return SignInOffer(
            provider=provider.name, issuer=provider.issuer, has_device_flow=has_device_flow
        )

    async def start(self, redirect_url: str, place: str) -> tuple[str, str]:
        """Return where a browser goes, and the secret that its cookie keeps meanwhile."""
        provider = self.sign_ins.require_provider()
        state, nonce, verifier, browser = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(4))
        url = await provider.authorization_url(redirect_url, state, nonce, verifier)
        attempt = BrowserAttempt(
            nonce=nonce, verifier=verifier, redirect_url=redirect_url, place=place
        )
        await self.attempts.begin(state, browser, attempt)
        return url, browser

    async def take(self, state: str, browser: str) -> BrowserAttempt:
        """Return the attempt that a browser comes back from. Raises RefusedError."""
        self.sign_ins.require_provider()
        return await self.attempts.take(state, browser)

    async def redeem(self, attempt: BrowserAttempt, code: str) -> SignedIn:
        """Return who signed in with the code that the browser brings. Raises RefusedError."""
        provider = self.sign_ins.require_provider()
        return await provider.redeem(code, attempt.redirect_url, attempt.verifier, attempt.nonce)

    async def log_in(self, signed_in: SignedIn) -> str:
        """Return the secret of a browser's login. Raises RefusedError for who has no role here."""
        made = await self.tokens.begin_session(signed_in, BROWSER_SESSION, LOGIN_SECONDS)
        return await self.logins.begin(Identity(role=made.token.role, token_id=made.token.token_id))

    async def sign_out(self, identity: Identity, back_url: str) -> str | None:
        """End the session that a caller shows; return where a browser ends it at the provider."""
        if identity.sign_in_id is None or identity.token_id is None:
            return None
        await self.tokens.revoke(identity.token_id, identity)
        return await self.sign_ins.end(identity.sign_in_id, back_url)

    async def start_device(self, client: str) -> DeviceCode:
        """Ask the provider for a code that a person confirms."""
        grant = await self.sign_ins.require_provider().start_device()
        code = await self.attempts.begin_device(grant, client)
        return DeviceCode(
            code=code,
            user_code=grant.user_code,
            verification_url=grant.verification_url,
            complete_url=grant.complete_url,
            interval_seconds=grant.interval_seconds,
            ends_at=utcnow() + timedelta(seconds=grant.ends_in_seconds),
        )

    async def claim_device(self, code: str) -> DeviceAttempt:
        """Return what our code stands for. Raises RefusedError for one that counts no more."""
        self.sign_ins.require_provider()
        return await self.attempts.claim_device(code)

    async def redeem_device(self, code: str, attempt: DeviceAttempt) -> SignedIn | None:
        """Return who has confirmed a code; None: nobody yet. Raises RefusedError for one that
        somebody refused, which counts no more.
        """
        if attempt.device_code is None:
            return None
        provider = self.sign_ins.require_provider()
        try:
            signed_in = await provider.redeem_device(attempt.device_code)
        except RefusedError:
            await self.attempts.end_device(code)
            raise
        if signed_in is not None:
            await self.attempts.end_device(code)
        return signed_in

    async def begin_device_session(self, signed_in: SignedIn, client: str) -> DeviceAnswer:
        """Make the session's token. Raises RefusedError for who has no role here."""
        made = await self.tokens.begin_session(signed_in, client, DEVICE_SECONDS)
        return DeviceAnswer(
            state=DeviceAnswerState.SIGNED_IN,
            interval_seconds=0.0,
            secret=made.secret,
            name=signed_in.person.name,
        )
