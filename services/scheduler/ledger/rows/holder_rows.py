"""Whose reservations are, for the map and for sentences."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from schemas.scheduler.reasons import Reason
from services.scheduler.domain.advice.holder_names import Holder, find_ids, with_names
from shared.postgres.database import Connection

_OWNERS: Final = """
SELECT reservation_id, namespace, holder, requester FROM reservation
WHERE reservation_id = ANY($1)
"""
_HOLDERS: Final = """
SELECT reservation_id, holder, namespace, requested_at, granted_at,
    granted_at + (request ->> 'expected_duration_seconds')::float8 * interval '1 second'
        AS expected_end_at
FROM reservation WHERE reservation_id = ANY($1)
"""


class Owner(NamedTuple):
    """Whose a reservation is."""

    namespace: str
    holder: str
    requester: str


async def owners(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Owner]:
    rows = await connection.fetch(_OWNERS, list(ids))
    return {
        row["reservation_id"]: Owner(row["namespace"], row["holder"], row["requester"])
        for row in rows
    }


async def name_holders(
    connection: Connection,
    reasons: Sequence[Reason],
    now: datetime,
    visible_namespaces: Collection[str] | None,
) -> tuple[Reason, ...]:
    """The reasons with the reservations in them called by their holders and times, as
    `with_names` does.
    """
    ids = find_ids(reasons)
    rows = await connection.fetch(_HOLDERS, list(ids)) if ids else ()
    holders = {
        row["reservation_id"]: Holder(
            holder=row["holder"],
            namespace=row["namespace"],
            requested_at=row["requested_at"],
            granted_at=row["granted_at"],
            expected_end_at=row["expected_end_at"],
        )
        for row in rows
    }
    return with_names(reasons, holders, now, visible_namespaces)
