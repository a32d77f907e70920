"""Rows of quotas: what namespaces may hold."""

from collections.abc import Sequence
from typing import Final

from services.scheduler.domain.model.namespaces import Quota
from shared.postgres.database import Connection, Row

_QUOTA: Final = "SELECT namespace, gpu_limit, guaranteed, weight FROM quota"
_FIND: Final = f"{_QUOTA} WHERE namespace = ANY($1)"
_ALL: Final = f"{_QUOTA} ORDER BY namespace"
_WRITE: Final = """
INSERT INTO quota AS q (namespace, gpu_limit, guaranteed, weight, revision)
VALUES ($1, $2, $3, $4, 1)
ON CONFLICT (namespace) DO UPDATE SET gpu_limit = $2, guaranteed = $3, weight = $4,
    revision = q.revision + 1
RETURNING revision
"""
# As decisions count it: what is quarantined is held too.
_USES: Final = """
WITH held AS (
    SELECT r.namespace, sum(h.hundredths) AS hundredths
    FROM holding h JOIN reservation r USING (reservation_id)
    WHERE h.released_at IS NULL GROUP BY r.namespace),
queued AS (
    SELECT namespace, count(*) AS requests FROM reservation
    WHERE state = 'queued' GROUP BY namespace)
SELECT namespace, q.gpu_limit, coalesce(q.guaranteed, 0) AS guaranteed,
    coalesce(q.weight, 1) AS weight, coalesce(h.hundredths, 0) AS held,
    coalesce(w.requests, 0) AS queued
FROM quota q FULL JOIN held h USING (namespace) FULL JOIN queued w USING (namespace)
ORDER BY namespace
"""


async def find(connection: Connection, namespaces: Sequence[str]) -> list[Quota]:
    return [_quota(row) for row in await connection.fetch(_FIND, namespaces)]


async def find_all(connection: Connection) -> list[Quota]:
    return [_quota(row) for row in await connection.fetch(_ALL)]


async def write(connection: Connection, quota: Quota) -> int:
    """Store it in place of what was; its revision."""
    return int(
        await connection.fetchval(
            _WRITE, quota.namespace, quota.limit, quota.guaranteed, quota.weight
        )
    )


async def uses(connection: Connection) -> Sequence[Row]:
    """List every namespace that has a quota, holds or waits: with its `held` hundredths,
    `queued`.
    """
    return await connection.fetch(_USES)


def _quota(row: Row) -> Quota:
    return Quota(
        namespace=row["namespace"],
        limit=row["gpu_limit"],
        guaranteed=row["guaranteed"],
        weight=row["weight"],
    )
