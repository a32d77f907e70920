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
from schemas.gateway.tokens import MadeToken, Role, Token, TokenRequest, TokenView
from services.gateway.domain.access import Identity, identify
from services.gateway.domain.token_rules import check_may_make, identity_of, person_of_token
from services.gateway.ledger.sign_ins import SignIns
from services.gateway.provider.client import SignedIn
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
last_used_at, requests_per_second, body_limit_bytes, person, is_session
"""

INSERT_TOKEN: Final = f"""
INSERT INTO token (token_id, token_sha256, name, role, namespaces, created_by, expires_at,
                   requests_per_second, body_limit_bytes, person, sign_in_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING {COLUMNS}
"""

INSERT_SESSION: Final = f"""
INSERT INTO token (token_id, token_sha256, name, role, namespaces, created_by, expires_at, person,
                   sign_in_id, is_session)
VALUES ($1, $2, $3, $4, $5, $6, $7, $6, $8, true) RETURNING {COLUMNS}
"""

# What the file says wins, but for a revocation.
IMPORT_FROM_FILE: Final = """
INSERT INTO token (token_id, token_sha256, name, role, namespaces, created_by, from_file)
VALUES ($1, $2, $3, $4, $5, $6, true)
ON CONFLICT (token_sha256) DO UPDATE SET role = excluded.role, namespaces = excluded.namespaces
    WHERE token.from_file
"""

SELECT_TOKEN: Final = f"""
SELECT {COLUMNS}, token_sha256, sign_in_id FROM token WHERE token_sha256 = $1
"""

SELECT_TOKEN_OF_LOGIN: Final = f"""
SELECT {COLUMNS}, token_sha256, sign_in_id, account FROM token JOIN login USING (token_id)
WHERE login_sha256 = $1 AND ends_at > now()
"""

SELECT_TOKEN_OF_LINK: Final = f"""
SELECT {COLUMNS}, token_sha256, sign_in_id FROM token WHERE token_id = $1
"""

SELECT_TOKEN_BY_ID: Final = f"SELECT {COLUMNS} FROM token WHERE token_id = $1"

SET_LAST_USED: Final = """
UPDATE token SET last_used_at = now() WHERE token_sha256 = $1
    AND (last_used_at IS NULL OR last_used_at < now() - make_interval(secs => $2))
"""

# Who is no admin sees their own, and those of nothing but namespaces of theirs. Of the same person
# are tokens of all sign-ins of the same account at the provider.
SELECT_TOKENS: Final = f"""
SELECT {COLUMNS} FROM token
WHERE ($1::timestamptz IS NULL OR (created_at, token_id) < ($1, $2::uuid))
  AND ($4 OR token_id = $5 OR sign_in_id IN (
          SELECT other.sign_in_id FROM sign_in mine JOIN sign_in other USING (issuer, subject)
          WHERE mine.sign_in_id = $6)
       OR (sign_in_id IS NULL AND role <> 'admin' AND namespaces <@ $7::text[]))
ORDER BY created_at DESC, token_id DESC LIMIT $3
"""

REVOKE_TOKEN: Final = f"""
UPDATE token SET revoked_at = coalesce(revoked_at, now())
WHERE token_id = $1
  AND ($2 OR token_id = $3 OR sign_in_id IN (
          SELECT other.sign_in_id FROM sign_in mine JOIN sign_in other USING (issuer, subject)
          WHERE mine.sign_in_id = $4)
       OR (sign_in_id IS NULL AND role <> 'admin' AND namespaces <@ $5::text[]))
RETURNING {COLUMNS}
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
    sign_ins: SignIns
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
        return bool(self.from_file) or self.sign_ins.provider is not None

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
        if row is not None and token is not None and row["sign_in_id"] is not None:
            identity = await self._with_rights(identity, token, row["sign_in_id"])
        if row is not None and "account" in row:
            return replace(identity, account=row["account"])
        return identity

    async def _with_rights(
        self, identity: Identity, token: TokenView, sign_in_id: UUID
    ) -> Identity:
        """Return the identity of a person who signed in, with what the token has of their rights.

        Raises RefusedError where the sign-in counts no more.
        """
        person, rights = await self.sign_ins.confirm(sign_in_id)
        if not token.is_session:
            rights = rights.cap_by(token.role, token.namespaces)
        provider = self.sign_ins.require_provider().name
        return identity_of(person.name, rights, provider, identity, sign_in_id=sign_in_id)

    async def create(self, request: TokenRequest, maker: Identity) -> MadeToken:
        """Make a token. Raises RefusedError for one with more than its maker has to give."""
        check_may_make(request, maker)
        secret = secrets.token_urlsafe(32)
        lifetime = request.expires_in_seconds
        namespaces = list(dict.fromkeys(request.namespaces))
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                INSERT_TOKEN,
                new_id(),
                digest_of(secret),
                request.name,
                request.role,
                namespaces,
                maker.name or "everybody",
                utcnow() + timedelta(seconds=lifetime) if lifetime is not None else None,
                request.requests_per_second,
                request.body_limit_bytes,
                person_of_token(request, maker),
                maker.sign_in_id if request.personal else None,
            )
        return MadeToken(secret=secret, token=_view(row))

    async def begin_session(self, signed_in: SignedIn, name: str, seconds: float) -> MadeToken:
        """Make the token of a sign-in. Raises RefusedError for who has no role here."""
        rights = await self.sign_ins.rights_of(signed_in.person)
        secret = secrets.token_urlsafe(32)
        async with self.database.transaction() as connection:
            sign_in_id = await self.sign_ins.store(connection, signed_in)
            row = await connection.fetchrow(
                INSERT_SESSION,
                new_id(),
                digest_of(secret),
                name,
                rights.role,
                list(rights.namespaces),
                signed_in.person.name,
                utcnow() + timedelta(seconds=seconds),
                sign_in_id,
            )
        return MadeToken(secret=secret, token=_view(row))

    async def list_tokens(
        self, last_place: TokenPlace | None, limit: int, reader: Identity, *, mine: bool = False
    ) -> list[TokenView]:
        """Return the tokens that somebody may see, or only those of their own, newest first."""
        place = (
            (last_place.created_at, last_place.token_id) if last_place is not None else (None, None)
        )
        async with self.database.statements() as connection:
            rows = await connection.fetch(
                SELECT_TOKENS,
                *place,
                limit,
                reader.role is Role.ADMIN and not mine,
                reader.token_id,
                reader.sign_in_id,
                [] if mine else list(reader.owned),
            )
        return [_view(row) for row in rows]

    async def revoke(self, token_id: UUID, caller: Identity) -> TokenView:
        """Have it count no more, for good. Raises RefusedError for one that there is not, as far as
        the caller may see.
        """
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                REVOKE_TOKEN,
                token_id,
                caller.role is Role.ADMIN,
                caller.token_id,
                caller.sign_in_id,
                list(caller.owned),
            )
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
