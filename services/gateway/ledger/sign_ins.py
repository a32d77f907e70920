"""Sign-ins at the provider, in Postgres, where every gateway finds them, and asks one at a time.

A sign-in counts as long as the provider confirms it: nobody acts whom it was not asked about within
four minutes, unless it is away, and then for a bounded time.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from schemas.gateway.tokens import Role
from services.gateway.domain.access import authentication_error
from services.gateway.domain.claims import Person
from services.gateway.domain.rights import (
    Membership,
    Rights,
    RoleMapping,
    describe_no_rights,
    rights_of,
)
from services.gateway.ledger.members import Members
from services.gateway.provider.client import Provider, ProviderTokens, SignedIn
from services.gateway.provider.requests import ProviderAway
from shared.errors import RefusedError
from shared.ids import new_id
from shared.logging import log
from shared.postgres.database import Connection, Database

RECHECK_SECONDS: Final = 240.0
CLAIM_SECONDS: Final = 20.0
# Until it is asked again after it was away: who waits for that is a request.
AWAY_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.2

INSERT_SIGN_IN: Final = """
INSERT INTO sign_in (sign_in_id, issuer, subject, name, groups, client_id, access_token,
                     refresh_token, id_token)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
SELECT_SIGN_IN: Final = """
SELECT issuer, subject, name, groups, client_id, access_token, refresh_token, id_token, refusal,
       extract(epoch FROM now() - checked_at)::float8 AS unchecked_seconds,
       array(SELECT array[member.namespace, member.role] FROM member
             WHERE (member.kind = 'person' AND member.name = sign_in.name)
                OR (member.kind = 'group' AND member.name = ANY (sign_in.groups))
             ORDER BY member.namespace) AS memberships
FROM sign_in WHERE sign_in_id = $1
"""
CLAIM: Final = """
UPDATE sign_in SET claimed_until = now() + make_interval(secs => $2)
WHERE sign_in_id = $1 AND refusal IS NULL AND checked_at < now() - make_interval(secs => $3)
  AND (claimed_until IS NULL OR claimed_until < now())
RETURNING sign_in_id
"""
SET_CONFIRMED: Final = """
UPDATE sign_in SET name = $2, groups = $3, access_token = $4, refresh_token = $5, id_token = $6,
    checked_at = now(), claimed_until = NULL
WHERE sign_in_id = $1
"""
SET_REFUSED: Final = """
UPDATE sign_in SET refusal = $2, access_token = '', refresh_token = '', claimed_until = NULL
WHERE sign_in_id = $1
"""
IS_CLAIMED: Final = "SELECT claimed_until > now() FROM sign_in WHERE sign_in_id = $1"
GIVE_CLAIM_BACK: Final = "UPDATE sign_in SET claimed_until = NULL WHERE sign_in_id = $1"
DELETE_OLD_SESSIONS: Final = """
DELETE FROM token WHERE is_session AND least(revoked_at, expires_at) < now() - interval '1 day'
"""
DELETE_UNUSED: Final = """
DELETE FROM sign_in WHERE began_at < now() - interval '1 hour' AND NOT EXISTS (
    SELECT FROM token WHERE token.sign_in_id = sign_in.sign_in_id)
"""
# What the provider gave is not kept longer than somebody acts by it.
CLEAR_OVER: Final = """
UPDATE sign_in SET access_token = '', refresh_token = '', id_token = ''
WHERE began_at < now() - interval '1 day' AND id_token <> '' AND NOT EXISTS (
    SELECT FROM token WHERE token.sign_in_id = sign_in.sign_in_id AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > now()))
"""
HAS_LIVE_TOKENS: Final = """
SELECT EXISTS (SELECT FROM token WHERE sign_in_id = $1 AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > now()))
"""


class SignIn(Struct, frozen=True, kw_only=True):
    """A sign-in as the provider confirmed it `unchecked_seconds` ago, or no longer does."""

    issuer: str
    person: Person
    tokens: ProviderTokens
    refusal: str | None
    unchecked_seconds: float
    memberships: tuple[Membership, ...] = ()


@dataclass(slots=True)
class SignIns:
    """Those at one provider. Without it none counts."""

    database: Database
    members: Members
    provider: Provider | None = None
    mapping: RoleMapping = field(default_factory=RoleMapping)
    grace: timedelta = timedelta(minutes=30)
    _asking: dict[UUID, asyncio.Task[None]] = field(default_factory=dict)
    _away_until: float = float("-inf")

    async def rights_of(self, person: Person) -> Rights:
        """Return what somebody may do. Raises RefusedError for who has no role here."""
        return self._require_rights(person, await self.members.memberships(person))

    def _require_rights(self, person: Person, memberships: Iterable[Membership]) -> Rights:
        rights = rights_of(person.name, person.groups, self.mapping, memberships)
        if not rights:
            raise authentication_error(
                describe_no_rights(person.name, person.groups, self.require_provider().name)
            )
        return rights

    def require_provider(self) -> Provider:
        """Raises RefusedError where nobody can sign in."""
        if self.provider is None:
            raise authentication_error(
                "this platform has no OpenID provider: show a token of the platform"
            )
        return self.provider

    async def store(self, connection: Connection, signed_in: SignedIn) -> UUID:
        """Store who signed in just now, and drop what counts no more."""
        sign_in_id, tokens = new_id(), signed_in.tokens
        await connection.execute(DELETE_OLD_SESSIONS)
        await connection.execute(DELETE_UNUSED)
        await connection.execute(CLEAR_OVER)
        await connection.execute(
            INSERT_SIGN_IN,
            sign_in_id,
            self.require_provider().issuer,
            signed_in.person.subject,
            signed_in.person.name,
            list(signed_in.person.groups),
            tokens.client_id,
            tokens.access_token,
            tokens.refresh_token,
            tokens.id_token,
        )
        return sign_in_id

    async def confirm(self, sign_in_id: UUID) -> tuple[Person, Rights]:
        """Return who signed in, as the provider said within four minutes, or before it went away,
        and what that person may do now.

        Raises RefusedError for a sign-in that counts no more.
        """
        provider = self.require_provider()
        sign_in = await self._load(sign_in_id)
        if sign_in.issuer != provider.issuer:
            raise authentication_error(
                f"expected a sign-in at {provider.issuer}, found one at {sign_in.issuer}"
            )
        if sign_in.refusal is None and sign_in.unchecked_seconds >= RECHECK_SECONDS:
            await self._ask_once(sign_in_id)
            sign_in = await self._load(sign_in_id)
        if sign_in.refusal is not None:
            raise authentication_error(sign_in.refusal)
        bound_seconds = RECHECK_SECONDS + self.grace.total_seconds()
        if sign_in.unchecked_seconds >= bound_seconds:
            raise authentication_error(
                f"{provider.name} has confirmed nobody for"
                f" {sign_in.unchecked_seconds / 60:.0f} minutes, and a sign-in counts without it"
                f" for {self.grace.total_seconds() / 60:.0f}; try again once it answers"
            )
        return sign_in.person, self._require_rights(sign_in.person, sign_in.memberships)

    async def end(self, sign_in_id: UUID, back_url: str) -> str | None:
        """Have the provider end a sign-in that no token is of any more; return where a browser
        ends its session there, None where there is nothing to end.
        """
        provider = self.require_provider()
        sign_in = await self._load(sign_in_id)
        async with self.database.statements() as connection:
            is_used = await connection.fetchval(HAS_LIVE_TOKENS, sign_in_id)
        try:
            url = await provider.logout_url(sign_in.tokens.id_token, back_url)
            if not is_used:
                await provider.revoke(sign_in.tokens)
                await self._refuse(sign_in_id, "this sign-in has ended; sign in again")
        except (ProviderAway, RefusedError) as error:
            log.info("provider_not_told_of_sign_out", reason=str(error))
            return None
        return url

    async def _ask_once(self, sign_in_id: UUID) -> None:
        """Ask the provider, once for all requests that wait for that."""
        task = self._asking.get(sign_in_id)
        if task is None:
            task = asyncio.ensure_future(self._ask(sign_in_id))
            self._asking[sign_in_id] = task
            task.add_done_callback(lambda _: self._asking.pop(sign_in_id, None))
        await asyncio.shield(task)

    async def _ask(self, sign_in_id: UUID) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._away_until:
            return
        async with self.database.transaction() as connection:
            claim = await connection.fetchval(CLAIM, sign_in_id, CLAIM_SECONDS, RECHECK_SECONDS)
        if claim is None:
            await self._wait_for_another(sign_in_id)
            return
        sign_in = await self._load(sign_in_id)
        try:
            renewed = await self.require_provider().refresh(sign_in.tokens, sign_in.person.subject)
        except ProviderAway as error:
            self._away_until = asyncio.get_running_loop().time() + AWAY_SECONDS
            log.warning("provider_away", reason=str(error))
            async with self.database.transaction() as connection:
                await connection.execute(GIVE_CLAIM_BACK, sign_in_id)
        except RefusedError as error:
            log.info("sign_in_taken_back", person=sign_in.person.name, reason=error.message)
            await self._refuse(sign_in_id, error.message)
        else:
            async with self.database.transaction() as connection:
                await connection.execute(
                    SET_CONFIRMED,
                    sign_in_id,
                    renewed.person.name,
                    list(renewed.person.groups),
                    renewed.tokens.access_token,
                    renewed.tokens.refresh_token,
                    renewed.tokens.id_token,
                )

    async def _wait_for_another(self, sign_in_id: UUID) -> None:
        """Wait for the gateway that asks. One that ended meanwhile is waited for in vain."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + CLAIM_SECONDS
        while loop.time() < ends_at:
            sign_in = await self._load(sign_in_id)
            if sign_in.refusal is not None or sign_in.unchecked_seconds < RECHECK_SECONDS:
                return
            async with self.database.statements() as connection:
                if await connection.fetchval(IS_CLAIMED, sign_in_id) is not True:
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _refuse(self, sign_in_id: UUID, reason: str) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(SET_REFUSED, sign_in_id, reason)

    async def _load(self, sign_in_id: UUID) -> SignIn:
        async with self.database.statements() as connection:
            row = await connection.fetchrow(SELECT_SIGN_IN, sign_in_id)
        if row is None:
            raise authentication_error("this sign-in has ended; sign in again")
        return read_sign_in(row)


def read_sign_in(row: Any) -> SignIn:
    """Read a sign-in from a row with its columns."""
    return SignIn(
        issuer=row["issuer"],
        person=Person(subject=row["subject"], name=row["name"], groups=tuple(row["groups"])),
        tokens=ProviderTokens(
            client_id=row["client_id"],
            access_token=row["access_token"],
            refresh_token=row["refresh_token"],
            id_token=row["id_token"],
        ),
        refusal=row["refusal"],
        unchecked_seconds=row["unchecked_seconds"],
        memberships=tuple(Membership(name, Role(role)) for name, role in row["memberships"]),
    )
