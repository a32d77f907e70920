"""Who was to change what over HTTP, when, and what came of it."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.tokens import AuditEntry
from services.gateway.domain.access import Identity
from shared.postgres.database import Database

TRIM_SECONDS: Final = 3600.0
AUDIT_ID: Final = "audit_id"  # of a request that is recorded, in its state

INSERT_ENTRY: Final = """
INSERT INTO audit (token_id, caller, address, method, path) VALUES ($1, $2, $3, $4, $5)
RETURNING audit_id
"""
SET_STATUS: Final = "UPDATE audit SET status = $2 WHERE audit_id = $1"
SELECT_ENTRIES: Final = """
SELECT audit_id, at, token_id, caller, address, method, path, status FROM audit
WHERE ($1::bigint IS NULL OR audit_id < $1) AND ($2::uuid IS NULL OR token_id = $2)
ORDER BY audit_id DESC LIMIT $3
"""
DELETE_OLD: Final = "DELETE FROM audit WHERE at < now() - make_interval(days => $1)"


class AuditPlace(Struct, frozen=True, array_like=True, tag="audit"):
    """By the order in which they came."""

    audit_id: int


@dataclass(frozen=True, slots=True)
class AuditLog:
    """In Postgres; requests' bodies, which may hold secrets, are not in it."""

    database: Database
    retention_days: int

    async def begin(self, identity: Identity, address: str, method: str, path: str) -> int:
        """Record a request before it changes anything. Raises UnavailableError."""
        async with self.database.statements() as connection:
            found: int = await connection.fetchval(
                INSERT_ENTRY, identity.token_id, identity.name, address, method, path
            )
        return found

    async def end(self, audit_id: int, status: int) -> None:
        """Record how it was answered. Raises UnavailableError."""
        async with self.database.statements() as connection:
            await connection.execute(SET_STATUS, audit_id, status)

    async def listed(
        self, after: AuditPlace | None, token_id: UUID | None, limit: int
    ) -> list[AuditEntry]:
        """Newest first."""
        before = after.audit_id if after is not None else None
        async with self.database.statements() as connection:
            rows: Any = await connection.fetch(SELECT_ENTRIES, before, token_id, limit)
        return [msgspec.convert(dict(row), AuditEntry) for row in rows]

    async def trim(self) -> None:
        """Delete what is past its retention, until cancelled."""
        while True:
            async with self.database.statements() as connection:
                await connection.execute(DELETE_OLD, self.retention_days)
            await asyncio.sleep(TRIM_SECONDS)
