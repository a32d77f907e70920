"""The decision log: what the engine was given and what it decided, so that it can be replayed.

A record holds every input since the record before it; a keyframe holds the engine's whole state
with its policy, and is where a replay can begin.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from schemas.scheduler.views import DecisionRecord, ListDecisions
from shared.postgres.database import Connection, Row, Writer
from shared.postgres.kept_plans import plan_for_arguments

KEYFRAME_EVERY: Final = 1_000  # records

_INSERT: Final = """
INSERT INTO decision (term, decided_at, keyframe, inputs, outcomes, reservation_ids, policy)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_DECISION: Final = "SELECT decision_id, term, decided_at, keyframe, inputs, outcomes FROM decision"
_FIND: Final = f"""
{_DECISION} WHERE decision_id > $1 AND ($2::uuid IS NULL OR $2 = ANY(reservation_ids))
ORDER BY decision_id LIMIT $3
"""
_FIND_NEWEST: Final = f"""
{_DECISION} WHERE decision_id < $1 AND ($2::uuid IS NULL OR $2 = ANY(reservation_ids))
ORDER BY decision_id DESC LIMIT $3
"""
_SINCE_KEYFRAME: Final = f"""
{_DECISION} WHERE decision_id BETWEEN (
    SELECT max(decision_id) FROM decision WHERE keyframe AND decision_id <= $1) AND $1
ORDER BY decision_id
"""
# From the last keyframe that is old enough, else from the first; not more than so many records.
_SINCE: Final = f"""
WITH kept AS (
    SELECT decision_id, decided_at FROM decision
    WHERE keyframe AND decision_id > (SELECT max(decision_id) - $2 FROM decision))
{_DECISION} WHERE decision_id >= coalesce(
    (SELECT max(decision_id) FROM kept WHERE decided_at <= $1),
    (SELECT min(decision_id) FROM kept))
ORDER BY decision_id
"""
_POLICIES: Final = """
SELECT decision_id, policy FROM decision WHERE decision_id = ANY($1) AND policy IS NOT NULL
"""
# `bounds` is the last record that is too old or beyond the number that may stay; what is deleted
# ends before the newest keyframe up to there, so that a replay of the rest can begin.
_DELETE: Final = """
WITH bounds AS (
    SELECT greatest((SELECT max(decision_id) - $2 FROM decision),
        (SELECT max(decision_id) FROM decision
            WHERE decided_at < now() - $1 * interval '1 day')) AS last),
first AS (
    SELECT max(decision_id) AS kept FROM decision, bounds
    WHERE keyframe AND decision_id <= bounds.last),
gone AS (
    DELETE FROM decision WHERE decision_id IN (
        SELECT decision_id FROM decision, first WHERE decision_id < first.kept
        ORDER BY decision_id LIMIT $3)
    RETURNING 1)
SELECT count(*) FROM gone
"""


async def record(
    connection: Writer,
    *,
    term: int,
    decided_at: datetime,
    keyframe: bool,
    inputs: str,
    outcomes: str,
    reservation_ids: Sequence[UUID],
    policy: str | None = None,
) -> None:
    """Write one decision in the transaction that applies it; a keyframe comes with its `policy`."""
    await connection.execute(
        _INSERT, term, decided_at, keyframe, inputs, outcomes, reservation_ids, policy
    )


async def find(connection: Connection, query: ListDecisions) -> tuple[DecisionRecord, ...]:
    """Recorded decisions that match, oldest first; before a number the newest first."""
    await plan_for_arguments(connection)
    statement, place = _FIND, query.after_id
    if query.before_id is not None:
        statement, place = _FIND_NEWEST, query.before_id
    rows = await connection.fetch(statement, place, query.reservation_id, query.limit)
    return tuple(_decision(row) for row in rows)


async def since_keyframe(connection: Connection, decision_id: int) -> tuple[DecisionRecord, ...]:
    """Return what a replay up to this decision needs: the keyframe before it and all that
    follows.
    """
    rows = await connection.fetch(_SINCE_KEYFRAME, decision_id)
    return tuple(_decision(row) for row in rows)


async def since(connection: Connection, at: datetime, limit: int) -> tuple[DecisionRecord, ...]:
    """The newest records from a keyframe on, as far back as a time, `limit` at most."""
    return tuple(_decision(row) for row in await connection.fetch(_SINCE, at, limit))


async def policies(connection: Connection, decision_ids: Iterable[int]) -> dict[int, str]:
    """The policies of those of these that are keyframes."""
    rows = await connection.fetch(_POLICIES, list(decision_ids))
    return {row["decision_id"]: row["policy"] for row in rows}


async def delete(connection: Connection, days: float, kept: int, limit: int) -> int:
    """Delete the oldest records beyond an age or a number, up to a keyframe; how many."""
    return int(await connection.fetchval(_DELETE, days, kept, limit))


def _decision(row: Row) -> DecisionRecord:
    inputs, outcomes = msgspec.json.decode(row["inputs"]), msgspec.json.decode(row["outcomes"])
    return DecisionRecord(**dict(row) | {"inputs": inputs, "outcomes": outcomes})
