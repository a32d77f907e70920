"""Sign-ins that are under way: a browser that went to the provider, a code that waits for a person.

Each counts once, for a few minutes, and at every gateway.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from services.gateway.domain.access import authentication_error
from services.gateway.provider.client import DeviceGrant
from shared.local_platform.tokens import digest_of
from shared.postgres.database import Database

ATTEMPT_SECONDS: Final = 600.0

INSERT_ATTEMPT: Final = """
INSERT INTO sign_in_attempt (state_sha256, browser_sha256, nonce, verifier, redirect_url, place,
                             ends_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7))
"""
DELETE_ENDED: Final = "DELETE FROM sign_in_attempt WHERE ends_at <= now()"
TAKE_ATTEMPT: Final = """
DELETE FROM sign_in_attempt WHERE state_sha256 = $1 AND browser_sha256 = $2 AND ends_at > now()
RETURNING nonce, verifier, redirect_url, place
"""
INSERT_DEVICE: Final = """
INSERT INTO device_attempt (code_sha256, device_code, client, interval_seconds, ends_at)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
"""
DELETE_ENDED_DEVICES: Final = "DELETE FROM device_attempt WHERE ends_at <= now()"
SELECT_DEVICE: Final = """
SELECT client, interval_seconds FROM device_attempt WHERE code_sha256 = $1 AND ends_at > now()
"""
CLAIM_DEVICE: Final = """
UPDATE device_attempt SET asked_at = now()
WHERE code_sha256 = $1 AND asked_at <= now() - make_interval(secs => interval_seconds)
RETURNING device_code
"""
DELETE_DEVICE: Final = "DELETE FROM device_attempt WHERE code_sha256 = $1"


class BrowserAttempt(Struct, frozen=True, kw_only=True):
    """What a browser was given along, and where it goes on."""

    nonce: str
    verifier: str
    redirect_url: str
    place: str


class DeviceAttempt(Struct, frozen=True, kw_only=True):
    """A code at the provider; `device_code` is None while it is too early to ask again."""

    client: str
    interval_seconds: float
    device_code: str | None


@dataclass(frozen=True, slots=True)
class SignInAttempts:
    """In Postgres."""

    database: Database

    async def begin(self, state: str, browser: str, attempt: BrowserAttempt) -> None:
        """Store what the answer of the provider will be held to."""
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_ENDED)
            await connection.execute(
                INSERT_ATTEMPT,
                digest_of(state),
                digest_of(browser),
                attempt.nonce,
                attempt.verifier,
                attempt.redirect_url,
                attempt.place,
                ATTEMPT_SECONDS,
            )

    async def take(self, state: str, browser: str) -> BrowserAttempt:
        """Return what a browser was given, and have it count no more. Raises RefusedError for an
        answer that this browser did not ask for.
        """
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(TAKE_ATTEMPT, digest_of(state), digest_of(browser))
        if row is None:
            raise authentication_error(
                "this sign-in was not begun by this browser, was finished already, or took more"
                f" than {ATTEMPT_SECONDS / 60:.0f} minutes; sign in again"
            )
        return BrowserAttempt(**dict(row))

    async def begin_device(self, grant: DeviceGrant, client: str) -> str:
        """Store a code of the provider; return ours for it."""
        code = secrets.token_urlsafe(32)
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_ENDED_DEVICES)
            await connection.execute(
                INSERT_DEVICE,
                digest_of(code),
                grant.device_code,
                client,
                grant.interval_seconds,
                grant.ends_in_seconds,
            )
        return code

    async def claim_device(self, code: str) -> DeviceAttempt:
        """Return what our code stands for. Raises RefusedError for one that counts no more."""
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(SELECT_DEVICE, digest_of(code))
            if row is None:
                raise authentication_error(
                    "this code was used already, has ended or never was; `gpusteward login` asks"
                    " for a new one"
                )
            device_code = await connection.fetchval(CLAIM_DEVICE, digest_of(code))
        return DeviceAttempt(
            client=row["client"], interval_seconds=row["interval_seconds"], device_code=device_code
        )

    async def end_device(self, code: str) -> None:
        """Have a code count no more."""
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_DEVICE, digest_of(code))
