"""Tokens in Postgres, where every gateway finds them, and a revocation counts for all at once."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gateway.tokens import MadeToken, Token, TokenRequest, TokenView
from services.gateway.domain.access import Identity, identify
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.local_platform.tokens import digest_of
from shared.postgres.database import Database

USED_SECONDS: Final = 60  # how exactly the last use is known
POLL_SECONDS: Final = 1.0
FILE: Final = "the file of tokens"

COLUMNS: Final = """
token_id, name, role, namespaces, created_at, created_by, from_file, expires_at, revoked_at,
last_used_at, requests_per_second, body_limit_bytes
"""

INSERT_TOKEN: Final = f"""
INSERT INTO token (token_id, token_sha256, name, role, namespaces, created_by, expires_at,
                   requests_per_second, body_limit_bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING {COLUMNS}
"""

# What the file says wins, but for a revocation.
IMPORT_FROM_FILE: Final = """
INSERT INTO token (token_id, token_sha256, name, role, namespaces, created_by, from_file)
VALUES ($1, $2, $3, $4, $5, $6, true)
ON CONFLICT (token_sha256) DO UPDATE SET role = excluded.role, namespaces = excluded.namespaces
    WHERE token.from_file
"""

SELECT_TOKEN: Final = f"SELECT {COLUMNS}, token_sha256 FROM token WHERE token_sha256 = $1"

SELECT_TOKEN_OF_LOGIN: Final = f"""
SELECT {COLUMNS}, token_sha256, account FROM token JOIN login USING (token_id)
WHERE login_sha256 = $1 AND ends_at > now()
"""

SELECT_TOKEN_OF_LINK: Final = f"SELECT {COLUMNS}, token_sha256 FROM token WHERE token_id = $1"

SELECT_TOKEN_BY_ID: Final = f"SELECT {COLUMNS} FROM token WHERE token_id = $1"

SET_LAST_USED: Final = """
UPDATE token SET last_used_at = now() WHERE token_sha256 = $1
    AND (last_used_at IS NULL OR last_used_at < now() - make_interval(secs => $2))
"""

SELECT_TOKENS: Final = f"""
SELECT {COLUMNS} FROM token
WHERE $1::timestamptz IS NULL OR (created_at, token_id) < ($1, $2::uuid)
ORDER BY created_at DESC, token_id DESC LIMIT $3
"""

REVOKE_TOKEN: Final = f"""
UPDATE token SET revoked_at = coalesce(revoked_at, now()) WHERE token_id = $1 RETURNING {COLUMNS}
"""

SELECT_ENDED: Final = """
SELECT token_sha256 FROM token
WHERE token_sha256 = ANY ($1) AND (revoked_at IS NOT NULL OR expires_at <= now())
"""


class TokenPlace(Struct, frozen=True, array_like=True, tag="token"):
    """By age."""

    created_at: datetime
    token_id: UUID


@dataclass(slots=True)
class TokenStore:
    """Those of the table, and of the file `from_file`, which is read into it at the start.

    A token of the file counts only as long as the file has it; where none is asked for there is no
    file, and clients of the same user go on to show theirs.
    """

    database: Database
    from_file: Sequence[Token]
    _streams: defaultdict[str, set[asyncio.Event]] = field(
        default_factory=lambda: defaultdict[str, set[asyncio.Event]](set)
    )

    async def open(self) -> None:
        """Read the file's tokens into the table."""
        async with self.database.transaction() as connection:
            for token in self.from_file:
                await connection.execute(
                    IMPORT_FROM_FILE,
                    new_id(),
                    token.token_sha256,
                    f"{token.role}-{token.token_sha256[:8]}",
                    token.role,
                    [token.namespace],
                    FILE,
                )

    @property
    def are_required(self) -> bool:
        """True if this gateway requires tokens; else a client without one is an admin."""
        return bool(self.from_file)

    async def identify(self, presented: str) -> Identity:
        """Return the identity of a token's owner. Raises RefusedError, UnavailableError without
        Postgres. Raises RefusedError, UnavailableError without Postgres.

        Asked each time: what one gateway revokes counts for all from then on.
        """
        return await self._identify(SELECT_TOKEN, digest_of(presented))

    async def identify_login(self, presented: str) -> Identity:
        """Return the identity of the login that a cookie names. Raises as `identify` does."""
        digest = digest_of(presented)
        return replace(await self._identify(SELECT_TOKEN_OF_LOGIN, digest), login_sha256=digest)

    async def identify_owner(self, token_id: UUID) -> Identity:
        """Return the identity of the owner of the token with this id. Raises as `identify` does."""
        return await self._identify(SELECT_TOKEN_OF_LINK, token_id)

    async def _identify(self, select: str, key: str | UUID) -> Identity:
        async with self.database.statements() as connection:
            row = await connection.fetchrow(select, key)
            token = _view(row) if row is not None else None
            digest = row["token_sha256"] if row is not None else ""
            if token is not None and token.from_file and not self._is_in_file(digest):
                token = None
            now = utcnow()
            identity = identify(token, digest, now)
            used = token.last_used_at if token is not None else None
            if used is None or now - used >= timedelta(seconds=USED_SECONDS):
                await connection.execute(SET_LAST_USED, digest, float(USED_SECONDS))
        if row is not None and "account" in row:
            return replace(identity, account=row["account"])
        return identity

    async def create(self, request: TokenRequest, created_by: str) -> MadeToken:
        """A new token."""
        secret = secrets.token_urlsafe(32)
        lifetime = request.expires_in_seconds
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                INSERT_TOKEN,
                new_id(),
                digest_of(secret),
                request.name,
                request.role,
                list(dict.fromkeys(request.namespaces)),
                created_by,
                utcnow() + timedelta(seconds=lifetime) if lifetime is not None else None,
                request.requests_per_second,
                request.body_limit_bytes,
            )
        return MadeToken(secret=secret, token=_view(row))

    async def list_tokens(self, last_place: TokenPlace | None, limit: int) -> list[TokenView]:
        """Return tokens, newest first."""
        place = (
            (last_place.created_at, last_place.token_id) if last_place is not None else (None, None)
        )
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_TOKENS, *place, limit)
        return [_view(row) for row in rows]

    async def revoke(self, token_id: UUID) -> TokenView:
        """Have it count no more, for good. Raises RefusedError for one that there is not."""
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(REVOKE_TOKEN, token_id)
        if row is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no token {token_id}", path="path.token_id")
        return _view(row)

    async def find(self, token_id: UUID) -> TokenView | None:
        """Return the token; None if there is none."""
        async with self.database.statements() as connection:
            row = await connection.fetchrow(SELECT_TOKEN_BY_ID, token_id)
        return _view(row) if row is not None else None

    @contextmanager
    def stream(self, identity: Identity) -> Iterator[asyncio.Event]:
        """Set within a second of the end of the token that this stream was opened with."""
        ended = asyncio.Event()
        self._streams[identity.caller].add(ended)
        try:
            yield ended
        finally:
            self._streams[identity.caller].discard(ended)
            if not self._streams[identity.caller]:
                del self._streams[identity.caller]

    async def end_streams(self) -> None:
        """Look every second whether tokens that streams are open with still count, until
        cancelled.
        """
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not self._streams:
                continue
            async with self.database.statements() as connection:
                rows = await connection.fetch(SELECT_ENDED, list(self._streams))
            for row in rows:
                for ended in self._streams.get(row["token_sha256"], ()):
                    ended.set()

    def _is_in_file(self, digest: str) -> bool:
        matches = (token.token_sha256 == digest for token in self.from_file)
        return not self.are_required or any(matches)


def _view(row: Any) -> TokenView:
    return msgspec.convert(dict(row), TokenView, strict=False)
