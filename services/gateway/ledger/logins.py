"""Logins of browsers, in Postgres: a page's scripts never see what a request is admitted by.

The cookie names a login; the token that it was made with is kept nowhere. A link has a code that
makes one login, for people who have a token where they have no browser.
"""

import secrets
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.gateway.tokens import LoginLink
from services.gateway.domain.access import Identity, SignInRefused
from shared.local_platform.tokens import digest_of
from shared.postgres.database import Database

LOGIN_SECONDS: Final = 12 * 3600
LINK_SECONDS: Final = 600

INSERT_LOGIN: Final = """
INSERT INTO login (login_sha256, token_id, account, ends_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))
"""
DELETE_ENDED: Final = "DELETE FROM login WHERE ends_at <= now()"
DELETE_LOGIN: Final = "DELETE FROM login WHERE login_sha256 = $1"
INSERT_LINK: Final = """
INSERT INTO login_link (code_sha256, token_id, account, ends_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4)) RETURNING ends_at
"""
DELETE_ENDED_LINKS: Final = "DELETE FROM login_link WHERE ends_at <= now()"
TAKE_LINK: Final = """
DELETE FROM login_link WHERE code_sha256 = $1 AND ends_at > now() RETURNING token_id, account
"""


@dataclass(frozen=True, slots=True)
class Logins:
    """Each ends by itself, by logging out, and with its token."""

    database: Database

    async def begin(self, identity: Identity) -> str:
        """The secret of a new login for a token, for the cookie."""
        secret = secrets.token_urlsafe(32)
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_ENDED)
            await connection.execute(
                INSERT_LOGIN,
                digest_of(secret),
                identity.token_id,
                identity.account,
                float(LOGIN_SECONDS),
            )
        return secret

    async def end(self, identity: Identity) -> None:
        """End the login that a request came with."""
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_LOGIN, identity.login_sha256)

    async def make_link(self, identity: Identity) -> LoginLink:
        """Make a code that logs a browser in once, as this caller."""
        code = secrets.token_urlsafe(24)
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_ENDED_LINKS)
            ends_at = await connection.fetchval(
                INSERT_LINK,
                digest_of(code),
                identity.token_id,
                identity.account,
                float(LINK_SECONDS),
            )
        return LoginLink(code=code, ends_at=ends_at)

    async def take_link(self, code: str) -> tuple[UUID, str]:
        """Return the token and the account that a code stands for, and have it count no more.

        Raises RefusedError for one that was used, has ended or never was.
        """
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(TAKE_LINK, digest_of(code))
        if row is None:
            raise SignInRefused(
                "this login link was used already, or is older than"
                f" {LINK_SECONDS // 60} minutes; `gpusteward login` prints a new one",
            )
        return row["token_id"], row["account"]
