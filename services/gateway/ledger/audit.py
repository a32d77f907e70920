"""Who was to change what over HTTP, or did over NATS, when, and what came of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from schemas.audit import CommandRecorded
from schemas.errors import HTTP_STATUS
from schemas.gateway.tokens import AuditEntry, AuditKind, AuditResult
from services.gateway.domain.access import Identity, SignInRefused
from services.gateway.domain.audited import State, difference, login_of
from services.gateway.domain.refused_sign_ins import RefusedSignIn, RefusedSignIns, minute_of
from shared.errors import UnavailableError
from shared.postgres.database import Connection, Database

TRIM_SECONDS: Final = 3600.0
COUNT_SECONDS: Final = 5.0
READ_ROWS: Final = 500
MAX_PATH_CHARACTERS: Final = 1000
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
AUDIT_ID: Final = "audit_id"  # of a request that is recorded, in its state
AUDIT_STATES: Final = "audit_states"  # asks, once it is done, what it changed or made

INSERT_ENTRY: Final = """
INSERT INTO audit (token_id, caller, address, method, path, kind, login)
VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING audit_id
"""
SET_OUTCOME: Final = """
UPDATE audit SET status = $2, before = $3, after = $4 WHERE audit_id = $1
"""
COLUMNS: Final = """
audit_id, at, token_id, caller, address, method, path, status, before, after, proved, kind, login,
count, reason
"""
SELECT_ENTRIES: Final = f"""
SELECT {COLUMNS} FROM audit
WHERE ($1::bigint IS NULL OR audit_id < $1) AND ($2::uuid IS NULL OR token_id = $2)
  AND ($3::text IS NULL OR caller = $3) AND ($4::text IS NULL OR starts_with(path, $4))
  AND ($5::timestamptz IS NULL OR at >= $5) AND ($6::timestamptz IS NULL OR at < $6)
  AND ($8::text IS NULL OR kind = $8)
  AND ($9::text IS NULL OR method = $9) AND ($10::text IS NULL OR path ~ $10)
  AND ($11::text IS NULL OR CASE $11
       WHEN 'done' THEN status < 400 WHEN 'refused' THEN status >= 400 ELSE status IS NULL END)
  AND ($12::text IS NULL
       OR strpos(lower(concat_ws(' ', path, caller, before, after)), lower($12)) > 0)
ORDER BY audit_id DESC LIMIT $7
"""
SELECT_AFTER: Final = f"""
SELECT {COLUMNS} FROM audit
WHERE (at, audit_id) > ($1, $2) AND ($3::timestamptz IS NULL OR at < $3)
ORDER BY at, audit_id LIMIT $4
"""
COUNT_REFUSED: Final = """
INSERT INTO audit (kind, at, address, reason, caller, token_id, count, method, path, status)
VALUES ('refused', $1, $2, $3, $4, $5, $6, $7, $8, 401)
ON CONFLICT (at, address, reason, caller) WHERE kind = 'refused'
DO UPDATE SET count = audit.count + excluded.count
"""
INSERT_RECORDED: Final = """
INSERT INTO audit (message_id, at, caller, address, method, path, status, before, after, proved,
                   login)
VALUES ($1, $2, $3, '', 'NATS', $4, $5, $6, $7, $8, 'bus') ON CONFLICT (message_id) DO NOTHING
"""
DELETE_OLD: Final = "DELETE FROM audit WHERE at < now() - make_interval(days => $1)"


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Entries that fit every field given; `path` is how theirs begins, `path_pattern` what the
    whole of it is like. `about` is a part of the path, of the caller, or of what was or is.
    """

    kind: AuditKind | None = None
    method: str | None = None
    path_pattern: str | None = None
    result: AuditResult | None = None
    about: str | None = None
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
    refused: RefusedSignIns = field(default_factory=RefusedSignIns)

    async def begin(
        self,
        identity: Identity,
        address: str,
        method: str,
        path: str,
        kind: AuditKind = AuditKind.CHANGE,
    ) -> int:
        """Record a request before it changes anything. Raises UnavailableError."""
        async with self.database.statements() as connection:
            audit_id: int = await connection.fetchval(
                INSERT_ENTRY,
                identity.token_id,
                identity.name,
                address,
                method,
                path,
                kind,
                login_of(identity),
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
                criteria.kind,
                criteria.method,
                criteria.path_pattern,
                criteria.result,
                criteria.about,
            )
        return [_entry(row) for row in rows]

    async def read(
        self, start_at: datetime | None, end_at: datetime | None
    ) -> AsyncIterator[list[AuditEntry]]:
        """Yield all entries of a time, oldest first, some at a time. Raises UnavailableError.

        No transaction is open in between, however slowly somebody reads.
        """
        place = (start_at or EARLIEST, 0)
        while True:
            async with self.database.statements() as connection:
                rows: Any = await connection.fetch(SELECT_AFTER, *place, end_at, READ_ROWS)
            if not rows:
                return
            yield [_entry(row) for row in rows]
            place = (rows[-1]["at"], rows[-1]["audit_id"])

    def count_refused(
        self, error: SignInRefused, address: str, method: str, path: str, now: datetime
    ) -> None:
        """Count a refused sign-in, which `record_refused` stores."""
        self.refused.count(
            RefusedSignIn(
                at=minute_of(now),
                address=address,
                reason=error.message,
                caller=error.name,
                token_id=error.token_id,
            ),
            method,
            path.replace("\0", "")[:MAX_PATH_CHARACTERS],
        )

    async def record_refused(self) -> None:
        """Store what was counted, every few seconds, until cancelled."""
        try:
            while True:
                await asyncio.sleep(COUNT_SECONDS)
                await self._store_refused()
        finally:
            with suppress(UnavailableError):
                await self._store_refused()

    async def _store_refused(self) -> None:
        counted = self.refused.take()
        if not counted:
            return
        try:
            async with self.database.transaction() as connection:
                await connection.executemany(
                    COUNT_REFUSED,
                    [
                        (key.at, key.address, key.reason, key.caller, key.token_id, *more)
                        for key, *more in counted
                    ],
                )
        except UnavailableError:
            self.refused.put_back(counted)
            raise

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


def _entry(row: Any) -> AuditEntry:
    return msgspec.convert(
        {**row, "before": _value(row["before"]), "after": _value(row["after"])}, AuditEntry
    )


def _json(state: State | None) -> str | None:
    return None if state is None else msgspec.json.encode(state).decode()


def _value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
