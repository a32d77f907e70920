"""Invitations of nodes, in Postgres: its clock ends them, and one row lets one server in."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from services.gateway.domain.access import SignInRefused
from shared.local_platform.tokens import digest_of
from shared.postgres.database import Database

INVITATION_SECONDS: Final = 3600

DELETE_ENDED: Final = "DELETE FROM node_invitation WHERE ends_at <= now()"
# A newer one replaces the older.
UPSERT: Final = """
INSERT INTO node_invitation (node_id, code_sha256, ends_at)
VALUES ($1, $2, now() + make_interval(secs => $3))
ON CONFLICT (node_id) DO UPDATE SET code_sha256 = excluded.code_sha256, ends_at = excluded.ends_at
RETURNING ends_at
"""
TAKE: Final = """
DELETE FROM node_invitation WHERE node_id = $1 AND code_sha256 = $2 AND ends_at > now()
RETURNING node_id
"""


@dataclass(frozen=True, slots=True)
class Invitations:
    """One for each node at most. The code itself is kept nowhere."""

    database: Database

    async def make(self, node_id: str) -> tuple[str, datetime]:
        """Return the code of a new invitation, in place of an earlier one, and when it ends."""
        code = secrets.token_urlsafe(32)
        async with self.database.transaction() as connection:
            await connection.execute(DELETE_ENDED)
            ends_at = await connection.fetchval(
                UPSERT, node_id, digest_of(code), float(INVITATION_SECONDS)
            )
        return code, ends_at

    async def take(self, node_id: str, code: str) -> None:
        """Spend the invitation of which this is the code.

        Raises RefusedError for one that was used, has ended, is another node's or never was: which
        of them is nobody's business.
        """
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(TAKE, node_id, digest_of(code))
        if row is None:
            raise SignInRefused(
                f"no invitation of {node_id} has this code: each counts once, for "
                f"{INVITATION_SECONDS // 60} minutes, and for the node that it was made for; "
                f"`gpusteward node invite {node_id}` makes another",
            )
