"""The rows of secrets, inside a caller's transaction. Their values come and go sealed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.orchestrator.secrets import SecretView
from services.orchestrator.domain.records import Attempt
from shared.postgres.database import Connection, Row, from_json

# Whoever seals holds the lock until its rows are committed: a rotation then finds them all.
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('secret', 0))"

UPSERT: Final = """
INSERT INTO secret (namespace, name, key_id, sealed, revision, set_by, set_at)
VALUES ($1, $2, $3, $4, 1, $5, $6)
ON CONFLICT (namespace, name) DO UPDATE
SET key_id = $3, sealed = $4, revision = secret.revision + 1, set_by = $5, set_at = $6
RETURNING revision
"""

DELETE: Final = "DELETE FROM secret WHERE namespace = $1 AND name = $2 RETURNING revision"
COUNT: Final = "SELECT count(*) FROM secret WHERE namespace = $1"
SELECT_NAMES: Final = "SELECT name FROM secret WHERE namespace = $1 ORDER BY name"
SELECT_KEY_IDS: Final = "SELECT DISTINCT key_id FROM secret ORDER BY key_id"
SELECT_SEALED: Final = "SELECT name, sealed FROM secret WHERE namespace = $1 AND name = ANY ($2)"
SELECT_OF_OTHER_KEYS: Final = """
SELECT namespace, name, sealed FROM secret WHERE key_id <> $1 FOR UPDATE
"""
SEAL_AGAIN: Final = """
UPDATE secret SET key_id = $3, sealed = $4 WHERE namespace = $1 AND name = $2
"""

SELECT_PAGE: Final = """
SELECT namespace, name, revision, set_at, set_by, ARRAY(
    SELECT task_name FROM task
    WHERE task.namespace = secret.namespace AND state NOT IN ('completed', 'failed', 'cancelled')
      AND (record #> '{file,secrets}')::jsonb ? secret.name
    ORDER BY task_name) AS used_by
FROM secret
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::text IS NULL OR (namespace, name) > ($2, $3::text))
ORDER BY namespace, name LIMIT $4
"""

SELECT_SUBJECT: Final = """
SELECT attempt.record AS attempt, namespace, task.record #>> '{file,secrets}' AS names
FROM attempt JOIN task USING (task_id) WHERE attempt_id = $1
"""


class SecretPlace(Struct, frozen=True, array_like=True, tag="secret"):
    """Where a secret is in a list."""

    namespace: str
    name: str


class SealedSecret(Struct, frozen=True):
    namespace: str
    name: str
    sealed: bytes


class AttemptSecrets(Struct, frozen=True):
    """An attempt, and the secrets that its task names."""

    attempt: Attempt
    namespace: str
    names: tuple[str, ...]


async def lock(connection: Connection) -> None:
    await connection.execute(LOCK)


async def save(
    connection: Connection, secret: SealedSecret, *, key_id: str, set_by: str, now: datetime
) -> int:
    """Return the secret's revision."""
    revision: int = await connection.fetchval(
        UPSERT, secret.namespace, secret.name, key_id, secret.sealed, set_by, now
    )
    return revision


async def delete(connection: Connection, namespace: str, name: str) -> int | None:
    """Return the revision that it had; None where it was not there."""
    revision: int | None = await connection.fetchval(DELETE, namespace, name)
    return revision


async def count(connection: Connection, namespace: str) -> int:
    number: int = await connection.fetchval(COUNT, namespace)
    return number


async def names_of(connection: Connection, namespace: str) -> tuple[str, ...]:
    return tuple(row["name"] for row in await connection.fetch(SELECT_NAMES, namespace))


async def key_ids(connection: Connection) -> tuple[str, ...]:
    """Return the keys that some secret is sealed with."""
    return tuple(row["key_id"] for row in await connection.fetch(SELECT_KEY_IDS))


async def find_sealed(
    connection: Connection, namespace: str, names: Sequence[str]
) -> dict[str, bytes]:
    """Return sealed values by name."""
    rows = await connection.fetch(SELECT_SEALED, namespace, list(names))
    return {row["name"]: row["sealed"] for row in rows}


async def find_of_other_keys(connection: Connection, key_id: str) -> list[SealedSecret]:
    """Return what another key sealed, and lock it."""
    rows = await connection.fetch(SELECT_OF_OTHER_KEYS, key_id)
    return [SealedSecret(row["namespace"], row["name"], row["sealed"]) for row in rows]


async def seal_again(connection: Connection, secrets: Sequence[SealedSecret], key_id: str) -> None:
    await connection.executemany(
        SEAL_AGAIN,
        [(secret.namespace, secret.name, key_id, secret.sealed) for secret in secrets],
    )


async def page(
    connection: Connection, namespace: str | None, start: SecretPlace | None, limit: int
) -> list[SecretView]:
    """Up to `limit` of what follows a place."""
    place = (None, None) if start is None else (start.namespace, start.name)
    return [_view(row) for row in await connection.fetch(SELECT_PAGE, namespace, *place, limit)]


async def of_attempt(connection: Connection, attempt_id: UUID) -> AttemptSecrets | None:
    row = await connection.fetchrow(SELECT_SUBJECT, attempt_id)
    if row is None:
        return None
    names = from_json(row["names"], tuple[str, ...]) if row["names"] is not None else ()
    return AttemptSecrets(from_json(row["attempt"], Attempt), row["namespace"], names)


def _view(row: Row) -> SecretView:
    return SecretView(
        namespace=row["namespace"],
        name=row["name"],
        revision=row["revision"],
        set_at=row["set_at"],
        set_by=row["set_by"],
        used_by=tuple(row["used_by"]),
    )
