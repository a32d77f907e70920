"""Which ticks of which boot of an agent are stored, and which minutes wait for their rollup."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Final
from uuid import UUID

from schemas.telemetry.readings import GpuSampled
from services.results.domain.rollup import find_minutes
from services.results.domain.ticks import Stretch, give_up_gaps, is_in, stretches_of
from shared.postgres.database import Connection

Key = tuple[str, int]  # a node and its boot: a number is found sooner than a UUID

INSERT_BOOTS: Final = """
INSERT INTO agent_boot (node_id, boot_id) SELECT * FROM unnest($1::text[], $2::uuid[])
ON CONFLICT DO NOTHING
"""

# In one order everywhere: two instances that store the same ticks must not wait for each other.
LOCK_BOOTS: Final = """
SELECT node_id, boot_id, seen FROM agent_boot
JOIN unnest($1::text[], $2::uuid[]) AS arrived (node_id, boot_id) USING (node_id, boot_id)
ORDER BY node_id, boot_id FOR UPDATE OF agent_boot
"""

UPDATE_BOOTS: Final = """
UPDATE agent_boot
SET seen = seen + arrived.ticks::int8multirange, stored_at = now(),
    ticks_given_up = ticks_given_up + given_up,
    due = CASE WHEN due @> arrived.minutes::timestamptz[] THEN due
          ELSE ARRAY(SELECT DISTINCT unnest(due || arrived.minutes::timestamptz[]) ORDER BY 1) END
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::text[])
    AS arrived (node_id, boot_id, ticks, given_up, minutes)
WHERE agent_boot.node_id = arrived.node_id AND agent_boot.boot_id = arrived.boot_id
"""


async def claim(
    connection: Connection, samples: Iterable[GpuSampled], rolled_up_from: date
) -> list[GpuSampled]:
    """The samples that are not stored yet, each once, noted as stored by this transaction.

    Minutes before `rolled_up_from` get no rollup any more: the samples beside them are gone.
    """
    arrived: dict[Key, dict[int, GpuSampled]] = {}
    for sample in samples:
        key = (sample.node_id, sample.boot_id.int)
        arrived.setdefault(key, {}).setdefault(sample.sequence, sample)
    stored_stretches = await _lock(connection, sorted(arrived))
    fresh: list[GpuSampled] = []
    updates: list[tuple[str, UUID, str, int, str]] = []
    for key, stretches in stored_stretches.items():
        ticks = arrived[key]
        new = [tick for tick in sorted(ticks) if not is_in(stretches, tick)]
        if not new:
            continue
        new_samples = [ticks[tick] for tick in new]
        fresh += new_samples
        stretch, given_up = give_up_gaps(stretches)
        minutes = {
            minute
            for minute in find_minutes(sample.observed_at for sample in new_samples)
            if minute.astimezone(UTC).date() >= rolled_up_from
        }
        updates.append(
            (
                key[0],
                UUID(int=key[1]),
                _literal([*stretches_of(new), *stretch]),
                given_up,
                _minutes_literal(minutes),
            )
        )
    if updates:
        await connection.execute(UPDATE_BOOTS, *(list(c) for c in zip(*updates, strict=True)))
    return fresh


async def _lock(connection: Connection, keys: Sequence[Key]) -> dict[Key, list[Stretch]]:
    """Read and lock the stored stretches of each boot, until the transaction's end."""
    stored_stretches = await _lock_boots(connection, keys)
    unknown = [key for key in keys if key not in stored_stretches]
    if unknown:
        await connection.execute(INSERT_BOOTS, *_columns(unknown))
        stored_stretches |= await _lock_boots(connection, unknown)
    return stored_stretches


async def _lock_boots(connection: Connection, keys: Sequence[Key]) -> dict[Key, list[Stretch]]:
    rows = await connection.fetch(LOCK_BOOTS, *_columns(keys))
    return {
        (row["node_id"], row["boot_id"].int): [(span.lower, span.upper) for span in row["seen"]]
        for row in rows
    }


def _columns(keys: Sequence[Key]) -> tuple[list[str], list[UUID]]:
    return [node_id for node_id, _ in keys], [UUID(int=boot) for _, boot in keys]


def _literal(stretches: Iterable[Stretch]) -> str:
    return "{" + ",".join(f"[{first},{end})" for first, end in stretches) + "}"


def _minutes_literal(minutes: Iterable[datetime]) -> str:
    return "{" + ",".join(minute.isoformat() for minute in sorted(minutes)) + "}"
