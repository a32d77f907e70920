"""Logins of browsers, in Postgres: a page's scripts never see what a request is admitted by.

The cookie names a login; the token that it was made with is kept nowhere.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from services.gateway.domain.access import Identity
from shared.local_platform.tokens import digest_of
from shared.postgres.database import Database

LOGIN_SECONDS: Final = 12 * 3600

INSERT_LOGIN: Final = """
INSERT INTO login (login_sha256, token_id, ends_at)
VALUES ($1, $2, now() + make_interval(secs => $3))
"""
DELETE_ENDED: Final = "DELETE FROM login WHERE ends_at <= now()"
DELETE_LOGIN: Final = "DELETE FROM login WHERE login_sha256 = $1"


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
                INSERT_LOGIN, digest_of(secret), identity.token_id, float(LOGIN_SECONDS)
            )
        return secret

    async def end(self, identity: Identity) -> None:
        """End the login that a request came with."""
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_LOGIN, identity.login_sha256)
