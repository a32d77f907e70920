"""Who was to change what over HTTP, or did over NATS, when, and what came of it."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.audit import CommandRecorded
from schemas.errors import HTTP_STATUS
from schemas.gateway.tokens import AuditEntry
from services.gateway.domain.access import Identity
from services.gateway.domain.audited import State, difference
from shared.postgres.database import Connection, Database

TRIM_SECONDS: Final = 3600.0
AUDIT_ID: Final = "audit_id"  # of a request that is recorded, in its state
AUDIT_STATES: Final = "audit_states"  # asks, once it is done, what it changed or made

INSERT_ENTRY: Final = """
INSERT INTO audit (token_id, caller, address, method, path) VALUES ($1, $2, $3, $4, $5)
RETURNING audit_id
"""
SET_OUTCOME: Final = """
UPDATE audit SET status = $2, before = $3, after = $4 WHERE audit_id = $1
"""
SELECT_ENTRIES: Final = """
SELECT audit_id, at, token_id, caller, address, method, path, status, before, after, proved
FROM audit
WHERE ($1::bigint IS NULL OR audit_id < $1) AND ($2::uuid IS NULL OR token_id = $2)
  AND ($3::text IS NULL OR caller = $3) AND ($4::text IS NULL OR starts_with(path, $4))
  AND ($5::timestamptz IS NULL OR at >= $5) AND ($6::timestamptz IS NULL OR at < $6)
ORDER BY audit_id DESC LIMIT $7
"""
INSERT_RECORDED: Final = """
INSERT INTO audit (message_id, at, caller, address, method, path, status, before, after, proved)
VALUES ($1, $2, $3, '', 'NATS', $4, $5, $6, $7, $8) ON CONFLICT (message_id) DO NOTHING
"""
DELETE_OLD: Final = "DELETE FROM audit WHERE at < now() - make_interval(days => $1)"


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Entries that fit every field given; `path` is how theirs begins."""

    token_id: UUID | None = None
    caller: str | None = None
    path: str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None


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
            audit_id: int = await connection.fetchval(
                INSERT_ENTRY, identity.token_id, identity.name, address, method, path
            )
        return audit_id

    async def end(
        self,
        audit_id: int,
        status: int,
        state_before: State | None = None,
        state_after: State | None = None,
    ) -> None:
        """Record how it was answered and what it changed. Raises UnavailableError."""
        async with self.database.statements() as connection:
            await connection.execute(
                SET_OUTCOME, audit_id, status, _json(state_before), _json(state_after)
            )

    async def list_entries(
        self, last_place: AuditPlace | None, criteria: AuditFilter, limit: int
    ) -> list[AuditEntry]:
        """Return entries, newest first."""
        place = last_place.audit_id if last_place is not None else None
        async with self.database.statements() as connection:
            rows: Any = await connection.fetch(
                SELECT_ENTRIES,
                place,
                criteria.token_id,
                criteria.caller,
                criteria.path,
                criteria.start_at,
                criteria.end_at,
                limit,
            )
        return [
            msgspec.convert(
                {**row, "before": _value(row["before"]), "after": _value(row["after"])},
                AuditEntry,
            )
            for row in rows
        ]

    async def trim(self) -> None:
        """Delete what is past its retention, until cancelled."""
        while True:
            async with self.database.statements() as connection:
                await connection.execute(DELETE_OLD, self.retention_days)
            await asyncio.sleep(TRIM_SECONDS)


async def insert_recorded(connection: Connection, event: CommandRecorded) -> None:
    """Store what came over NATS, once."""
    old_values, new_values = difference(event.before, event.after)
    status = HTTP_STATUS[event.refused] if event.refused is not None else HTTPStatus.OK
    await connection.execute(
        INSERT_RECORDED,
        event.message_id,
        event.occurred_at,
        event.sender or f"somebody of {event.namespace}",
        f"{event.what}/{event.of}" if event.of else event.what,
        int(status),
        _json(old_values),
        _json(new_values),
        bool(event.sender),
    )


def _json(state: State | None) -> str | None:
    return None if state is None else msgspec.json.encode(state).decode()


def _value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
