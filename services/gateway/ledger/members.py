"""Members of namespaces: people and groups with a role there, set by its owners."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec

from schemas.errors import ErrorCode
from schemas.gateway.sign_in import MemberRequest, MemberView
from services.gateway.domain.claims import Person
from services.gateway.domain.rights import Membership
from shared.errors import RefusedError
from shared.ids import new_id
from shared.postgres.database import Database

COLUMNS: Final = "member_id, namespace, kind, name, role, set_by, set_at"
SELECT_MEMBERS: Final = f"SELECT {COLUMNS} FROM member WHERE namespace = $1 ORDER BY kind, name"
SELECT_MEMBER: Final = f"SELECT {COLUMNS} FROM member WHERE member_id = $1"
UPSERT_MEMBER: Final = f"""
INSERT INTO member (member_id, namespace, kind, name, role, set_by) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (namespace, kind, name) DO UPDATE
    SET role = excluded.role, set_by = excluded.set_by, set_at = now()
RETURNING {COLUMNS}
"""
DELETE_MEMBER: Final = f"""
DELETE FROM member WHERE namespace = $1 AND member_id = $2 RETURNING {COLUMNS}
"""
SELECT_MEMBERSHIPS: Final = """
SELECT namespace, role FROM member
WHERE (kind = 'person' AND name = $1) OR (kind = 'group' AND name = ANY ($2))
ORDER BY namespace, role
"""


@dataclass(frozen=True, slots=True)
class Members:
    """In Postgres; a change counts with the next request of whom it is about."""

    database: Database

    async def list_members(self, namespace: str) -> list[MemberView]:
        """Return the members of a namespace, by kind and name."""
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_MEMBERS, namespace)
        return [_view(row) for row in rows]

    async def set_member(self, namespace: str, request: MemberRequest, set_by: str) -> MemberView:
        """Add a member, or change the role of one."""
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(
                UPSERT_MEMBER, new_id(), namespace, request.kind, request.name, request.role, set_by
            )
        return _view(row)

    async def remove(self, namespace: str, member_id: UUID) -> MemberView:
        """Remove a member of a namespace. Raises RefusedError for one that it does not have."""
        async with self.database.transaction() as connection:
            row = await connection.fetchrow(DELETE_MEMBER, namespace, member_id)
        if row is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"namespace {namespace} has no member {member_id}",
                path="path.member_id",
            )
        return _view(row)

    async def find(self, member_id: UUID) -> MemberView | None:
        """Return the member; None if there is none."""
        async with self.database.statements() as connection:
            row = await connection.fetchrow(SELECT_MEMBER, member_id)
        return _view(row) if row is not None else None

    async def memberships(self, person: Person) -> list[Membership]:
        """Return the roles that somebody has as a member."""
        async with self.database.statements() as connection:
            rows = await connection.fetch(SELECT_MEMBERSHIPS, person.name, list(person.groups))
        return [msgspec.convert(tuple(row), Membership, strict=False) for row in rows]


def _view(row: Any) -> MemberView:
    return msgspec.convert(dict(row), MemberView, strict=False)
